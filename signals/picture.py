"""The dashboard drawn without Grafana: each panel's own queries, asked of a Prometheus, as one SVG.

    python -m signals.picture http://127.0.0.1:9090 docs/images/dashboard.svg --minutes 10

For the documentation: what is seen is what panels ask and what services answered, but not how Grafana would draw it.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from signals.dashboard import ROWS, Panel, asked

COLUMNS, WIDTH, HEIGHT, GAP = 3, 400, 200, 8
LEFT, TOP, RIGHT, BOTTOM = 46, 26, 8, 44
"""around the lines of a panel"""
HEADING = 30
LEGEND, NAME = 5, 26
"""names below a panel, and letters of one; more do not fit"""
COLOURS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#8ab8ff", "#fade2a")
STYLE = (
    "text{font:10px system-ui,sans-serif;fill:#9fa7b3}.t{font-size:12px;fill:#ccccdc}.h{font-size:15px;fill:#ccccdc}"
    "path{fill:none;stroke-width:1.5}line{stroke:#2c3038}"
)


@dataclass(frozen=True)
class Series:
    name: str
    points: tuple[tuple[float, float], ...]
    """(time, value), numbers only"""


@dataclass(frozen=True)
class Window:
    start: float
    end: float
    step: float


Answers = Sequence[tuple[str, Sequence[tuple[Panel, Sequence[Series]]]]]


def ask(address: str, window: Window) -> Answers:
    return [(row.title, [(panel, [*_series(address, panel, window)]) for panel in row.panels]) for row in ROWS]


def _series(address: str, panel: Panel, window: Window) -> Iterator[Series]:
    for expression, (_, legend) in zip(asked(panel), panel.queries, strict=True):
        query = {"query": expression, "start": window.start, "end": window.end, "step": window.step}
        with urllib.request.urlopen(
            f"{address}/api/v1/query_range?{urllib.parse.urlencode(query)}", timeout=30
        ) as answer:
            found = json.load(answer)["data"]["result"]
        for each in found:
            points = ((float(at), float(value)) for at, value in each["values"])
            yield Series(named(legend, each["metric"]), tuple(p for p in points if math.isfinite(p[1])))


def named(legend: str, labels: dict[str, str]) -> str:
    """As Grafana fills a legend in."""
    return re.sub(r"{{\s*(\w+)\s*}}", lambda match: labels.get(match[1], ""), legend)


def svg(answers: Answers, window: Window) -> str:
    body, y = [], GAP
    width = COLUMNS * (WIDTH + GAP) + GAP
    for title, panels in answers:
        body.append(f'<text class="h" x="{GAP}" y="{y + 20}">{escape(title)}</text>')
        y += HEADING
        for place, (panel, series) in enumerate(panels):
            x = GAP + place % COLUMNS * (WIDTH + GAP)
            top = y + place // COLUMNS * (HEIGHT + GAP)
            body.append(f'<g transform="translate({x},{top})">{"".join(_panel(panel, series, window))}</g>')
        y += math.ceil(len(panels) / COLUMNS) * (HEIGHT + GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" role="img"><style>{STYLE}</style>'
    return "\n".join([head, f'<rect width="{width}" height="{y}" fill="#111217"/>', *body, "</svg>"]) + "\n"


def _panel(panel: Panel, series: Sequence[Series], window: Window) -> Iterator[str]:
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" rx="2" fill="#181b1f"/>'
    yield f'<text class="t" x="8" y="17">{escape(panel.title)}</text>'
    shown = [each for each in series if each.points]
    if not shown:
        yield f'<text x="{WIDTH // 2}" y="{HEIGHT // 2}" text-anchor="middle">No data</text>'
        return
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    top = ceiling(max(value for each in shown for _, value in each.points))
    for part in range(5):
        y = TOP + high * (1 - part / 4)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.0f}" y2="{y:.0f}"/>'
        yield f'<text x="{LEFT - 5}" y="{y + 3:.0f}" text-anchor="end">{said(top * part / 4, panel.unit)}</text>'
    for number, each in enumerate(shown):
        xy = (
            (LEFT + wide * (t - window.start) / (window.end - window.start), TOP + high * (1 - v / top))
            for t, v in each.points
        )
        path = "M" + "L".join(f"{x:.0f} {y:.1f}" for x, y in xy)
        yield f'<path stroke="{COLOURS[number % len(COLOURS)]}" d="{path}"/>'
    for number, each in enumerate(shown[:LEGEND]):
        x, y = LEFT + number % 2 * wide // 2, HEIGHT - 32 + number // 2 * 12
        name = each.name if len(each.name) <= NAME else each.name[: NAME - 1] + "…"
        more = f" and {len(shown) - LEGEND} more" if number == LEGEND - 1 and len(shown) > LEGEND else ""
        yield f'<rect x="{x}" y="{y - 4}" width="10" height="2" fill="{COLOURS[number % len(COLOURS)]}"/>'
        yield f'<text x="{x + 14}" y="{y}">{escape(name + more)}</text>'


def ceiling(value: float) -> float:
    """The next number that an axis may end with: 1, 2, 4 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 4, 8, 10) if factor * power >= value * 0.999)


def said(value: float, unit: str) -> str:
    """A number at an axis, in the panel's unit."""
    if value == 0:
        return "0"
    if unit == "bytes":
        return f"{value / 2**20:.0f} Mi"
    if unit == "s" and value >= 7200:
        return f"{value / 3600:.0f} h"
    if unit == "s" and value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g}{' s' if unit == 's' else '/s' if unit == 'reqps' else ''}"


def main(address: str, target: Path, minutes: float, end: float) -> None:
    window = Window(end - minutes * 60, end, minutes * 60 / 100)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(svg(ask(address.rstrip("/"), window), window))


if __name__ == "__main__":
    address, target, *rest = sys.argv[1:]
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    main(address, Path(target), float(options.get("--minutes", 10)), float(options.get("--end", time.time())))
