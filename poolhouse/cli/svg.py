"""Draws step charts as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

WIDTH, PANEL, LEFT, TOP, GAP = 960, 180, 60, 40, 50
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
TICKS = 7


@dataclass(frozen=True)
class Series:
    """Values that hold from their time until that of the next."""

    name: str
    points: Sequence[tuple[float, float]]


def step_chart(title: str, begin: float, end: float, *panels: Sequence[Series]) -> str:
    """An SVG document with one panel below the other, from `begin` until `end` in seconds since 1970."""
    height = TOP + len(panels) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect class="ground" width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, 20, title),
        _text(WIDTH - 20, 20, "times in UTC", "end"),
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, begin, end, TOP + number * (PANEL + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Sequence[Series], begin: float, end: float, top: int) -> list[str]:
    right, bottom = WIDTH - 20, top + PANEL
    panel = [Series(each.name, _since(each.points, begin)) for each in panel]
    highest = max([1.0, *(value for series in panel for _, value in series.points)])

    def x(time: float) -> float:
        return LEFT + (min(max(time, begin), end) - begin) / (end - begin) * (right - LEFT)

    def y(value: float) -> float:
        return bottom - value / highest * (PANEL - 20)

    parts = [f'<path class="axis" d="M{LEFT} {top}V{bottom}H{right}" fill="none" stroke="black"/>']
    parts += [_text(LEFT - 8, y(value) + 4, f"{value:g}", "end") for value in (0, highest)]
    form = "%a %H:%M" if end - begin >= 60 * TICKS else "%H:%M:%S"
    for tick in range(TICKS + 1):
        time = begin + tick * (end - begin) / TICKS
        anchor = "end" if tick == TICKS else "middle"  # the last one ends in the picture
        parts.append(_text(x(time), bottom + 16, f"{datetime.fromtimestamp(time, UTC):{form}}", anchor))
    for number, series in enumerate(panel):
        colour = COLOURS[number % len(COLOURS)]
        shown = [(max(time, begin), value) for time, value in series.points]
        if shown:
            path = f"M{x(shown[0][0]):.1f} {y(shown[0][1]):.1f}"
            path += "".join(f"H{x(time):.1f}V{y(value):.1f}" for time, value in shown[1:])
            parts.append(f'<path class="line-{number}" d="{path}H{x(end):.1f}" fill="none" stroke="{colour}"/>')
        parts.append(_text(LEFT + 10 + 230 * number, top + 4, series.name, colour=colour, style=f"fill-{number}"))
    return parts


def _since(points: Sequence[tuple[float, float]], begin: float) -> Sequence[tuple[float, float]]:
    """The points from `begin` on, with the last one before."""
    first = max((number for number, (time, _) in enumerate(points) if time <= begin), default=0)
    return points[first:]


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "black", style: str = "text") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
