"""The reference page of the states of warm VMs, with a drawing of their transitions."""

import ast
import inspect
from itertools import pairwise
from math import copysign
from textwrap import dedent

from controllers.claim.plan import __doc__ as CLAIM_STEPS
from poolhouse.api.kinds.warm_states import COUNTED, TRANSITIONS, UNCLAIMED, WarmState, may_return

DRAWING = "warm-vm-states.svg"
QUEUES = {
    WarmState.PROVISIONING: "Provisioning",
    WarmState.READY: "Ready",
    WarmState.ALLOCATING: "Allocating Pod",
    WarmState.UNHEALTHY: "Unhealthy",
}
"""the queues of the design document"""
PLACES = {
    None: (0, 1),
    WarmState.PROVISIONING: (1, 1),
    WarmState.STANDING_BY: (2, 0),
    WarmState.READY: (3, 1),
    WarmState.ALLOCATING: (4, 0),
    WarmState.IN_USE: (5, 0),
    WarmState.UNHEALTHY: (1, 2),
    WarmState.UNKNOWN: (2, 3),
    WarmState.TERMINATING: (4, 3),
}
"""column and row of each state in the drawing"""
WIDTH, HEIGHT, COLUMN, ROW = 168, 44, 212, 110
"""size of a box, and distances of the boxes, in pixels"""


def page() -> str:
    described = meanings()
    rows = [
        f"| `{state.value}` | {described[state.name]} | {QUEUES.get(state, '')} | {_yes(state in COUNTED)} |"
        f" {_yes(state in UNCLAIMED)} | {', '.join(f'`{each.value}`' for each in following(state))} |"
        for state in WarmState
    ]
    first = " or ".join(f"`{each.value}`" for each in following(None))
    return "\n".join(
        [
            "# States of warm VMs and claims",
            "",
            "Made from the code of the controllers by `make generate`. [Warm pools](../warm-pools.md) explains the"
            " behaviour, and [reasons](reasons.md) lists the reasons of conditions and events.",
            "",
            "## States of a warm VM",
            "",
            f"![The states of a warm VM and their transitions]({DRAWING})",
            "",
            f"The label `poolhouse.dev/warm-state` of a VM, or the tag `WarmPool` of an EC2 instance. A new VM is"
            f" {first}; the second is created for a claim. The controllers refuse every other transition.",
            "",
            "| State | Meaning | Queue of the design document | Counts towards `replicas` | Belongs to the pool"
            " | Next states |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            "A reserved VM returns to `Ready` only if nothing has activated it for its claim.",
            "",
            "## Steps of a claim",
            "",
            "```",
            _state_machine(),
            "```",
            "",
        ]
    )


def following(state: WarmState | None) -> list[WarmState]:
    returns = [WarmState.READY] if may_return(state, activated=False) else []
    return [each for each in WarmState if each in TRANSITIONS[state] or each in returns]


def meanings() -> dict[str, str]:
    """The documentation of each state by its name in the code."""
    (body,) = (node.body for node in ast.parse(inspect.getsource(WarmState)).body if isinstance(node, ast.ClassDef))
    return {
        ast.unparse(member.targets[0]): str(text.value.value)
        for member, text in pairwise(body)
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def drawing() -> str:
    """An SVG with a box for each state and an arrow for each allowed transition."""
    columns, rows = (max(place[axis] for place in PLACES.values()) for axis in (0, 1))
    view = f"-8 -8 {columns * COLUMN + WIDTH + 16} {rows * ROW + HEIGHT + 16}"
    arrows = [_arrow(before, after) for before in (None, *WarmState) for after in following(before)]
    boxes = [_box(state) for state in WarmState]
    x, y = _center(None)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" font-family="sans-serif">',
            '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>',
            *arrows,
            f'<circle cx="{x:g}" cy="{y:g}" r="9" fill="#777"/>',
            *boxes,
            "</svg>",
            "",
        ]
    )


def _box(state: WarmState) -> str:
    x, y = _center(state)
    fill = "#d9ead3" if state is WarmState.READY else "#cfe2f3" if state not in UNCLAIMED else "#ffffff"
    prefix, _, last = state.value.rpartition("_")
    words = [f"{prefix}_", last] if len(state.value) > 18 else [state.value]
    lines = "".join(
        f'<tspan x="{x:g}" y="{y + 5 + 16 * (number - (len(words) - 1) / 2):g}">{word}</tspan>'
        for number, word in enumerate(words)
    )
    return (
        f'<rect x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{fill}"'
        f' stroke="#777"/><text text-anchor="middle" font-size="13" fill="#111">{lines}</text>'
    )


def _arrow(before: WarmState | None, after: WarmState) -> str:
    """A line between the borders of two boxes. The lines of opposite transitions lie beside each other."""
    (x1, y1), (x2, y2) = _center(before), _center(after)
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    aside = 7 if before in following(after) else 0
    dx, dy = aside * (y1 - y2) / length, aside * (x2 - x1) / length
    first = _leaves_box(x2 - x1, y2 - y1, dx, dy) if before else 9 / length
    last = 1 - _leaves_box(x1 - x2, y1 - y2, dx, dy)
    start = f"{x1 + (x2 - x1) * first + dx:.1f} {y1 + (y2 - y1) * first + dy:.1f}"
    end = f"{x1 + (x2 - x1) * last + dx:.1f} {y1 + (y2 - y1) * last + dy:.1f}"
    return f'<path d="M{start}L{end}" stroke="#777" fill="none" marker-end="url(#end)"/>'


def _leaves_box(dx: float, dy: float, from_x: float, from_y: float) -> float:
    """The part of a line that lies inside the box at its start. The line starts beside the center of the box."""
    across = (WIDTH / 2 - copysign(1, dx) * from_x) / abs(dx) if dx else 1.0
    along = (HEIGHT / 2 - copysign(1, dy) * from_y) / abs(dy) if dy else 1.0
    return min(across, along)


def _center(state: WarmState | None) -> tuple[float, float]:
    column, row = PLACES[state]
    return column * COLUMN + WIDTH / 2, row * ROW + HEIGHT / 2


def _state_machine() -> str:
    """The drawing in the documentation of the module that decides the steps."""
    lines = (CLAIM_STEPS or "").splitlines()
    drawn = [line for line in lines if line.startswith("    ") or not line]
    return dedent("\n".join(drawn)).strip("\n")


def _yes(value: bool) -> str:
    return "yes" if value else ""
