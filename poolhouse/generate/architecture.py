"""Draws the services and who calls whom, for docs/architecture.md and the README."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

DRAWING = "architecture.svg"
WIDTH, HEIGHT = 960, 430

STYLE = """
text{font:14px sans-serif;fill:#1b1f24} .small{font-size:12px;fill:#57606a} .title{font-weight:bold}
.page{fill:#fff} .ours{fill:#dff0fb;stroke:#0b6fa4} .other{fill:#f2f4f6;stroke:#8c959f} .box{stroke-width:1.5px}
.line{fill:none;stroke:#57606a;stroke-width:1.5px} .end{fill:#57606a}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3} .small{fill:#a8b3bf} .page{fill:#161b22} .ours{fill:#0c3a55;stroke:#58b6e8}
.other{fill:#262c34;stroke:#8c959f} .line{stroke:#a8b3bf} .end{fill:#a8b3bf}}
"""


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    title: str
    lines: Sequence[str]
    ours: bool = False
    width: int = 210
    height: int = 84


@dataclass(frozen=True)
class Arrow:
    """A line through points, with a label that begins or ends at a point."""

    points: Sequence[tuple[int, int]]
    label: str
    at: tuple[int, int]
    anchor: str = "middle"


BOXES = (
    Box(375, 12, "Users and programs", ["kubectl, poolhouse, GitOps,", "autoscalers"], height=76),
    Box(20, 150, "Webhook", ["validates our kinds, decides", "hardware, answers dry runs"], ours=True),
    Box(375, 150, "API server", ["all state: pools, claims, VMs,", "policies, certificates"]),
    Box(730, 150, "Controllers", ["observe, plan, apply;", "one replica leads"], ours=True),
    Box(20, 300, "Defaulter", ["libvirt in worker processes,", "no token, no network"], ours=True),
    Box(375, 300, "KubeVirt and CDI", ["run VMs; on one machine, the", "engine of the embedded stack"]),
)
ARROWS = (
    Arrow([(480, 88), (480, 148)], "apply, scale, claim", (490, 122), "start"),
    Arrow([(375, 178), (232, 178)], "admission", (303, 170)),
    Arrow([(730, 178), (587, 178)], "watch, write", (658, 170)),
    Arrow([(125, 234), (125, 298)], "hardware of a VM", (135, 262), "start"),
    Arrow([(480, 300), (480, 236)], "watch, write", (490, 288), "start"),
    Arrow([(230, 210), (300, 210), (300, 252), (780, 252), (780, 236)], "plans of a change", (610, 246)),
    Arrow([(880, 234), (880, 408), (125, 408), (125, 386)], "hardware of VMs that admission missed", (700, 400)),
)


def drawing() -> str:
    """An SVG in the colours, light or dark, that the reader prefers."""
    described = "; ".join(f"{box.title}: {' '.join(box.lines)}" for box in BOXES)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>The services of Poolhouse</title><desc>{escape(described)}</desc>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path class="end" d="M0 0L8 4L0 8z"/></marker></defs>',
            f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
            *(_arrow(each) for each in ARROWS),
            *(_box(each) for each in BOXES),
            "</svg>",
            "",
        ]
    )


def _box(box: Box) -> str:
    kind = "ours" if box.ours else "other"
    middle = box.x + box.width / 2
    lines = "".join(
        f'<text class="small" text-anchor="middle" x="{middle:g}" y="{box.y + 48 + 17 * number}">{escape(line)}</text>'
        for number, line in enumerate(box.lines)
    )
    return (
        f'<rect class="box {kind}" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="8"/>'
        f'<text class="title" text-anchor="middle" x="{middle:g}" y="{box.y + 26}">{escape(box.title)}</text>{lines}'
    )


def _arrow(arrow: Arrow) -> str:
    path = "L".join(f"{x} {y}" for x, y in arrow.points)
    x, y = arrow.at
    return (
        f'<path class="line" d="M{path}" marker-end="url(#end)"/>'
        f'<text class="small" text-anchor="{arrow.anchor}" x="{x}" y="{y}">{escape(arrow.label)}</text>'
    )
