"""Times as kubectl's options take them: `30s`, `1m30s`, `2h`, and a bare number of seconds."""

from __future__ import annotations

import re
from typing import Any

import click

SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")


class Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = parse_duration(value)
        if found is None:
            self.fail(f"{value!r} is no time; write it as 10s, 1m30s or 2h", param, context)
        return found


def parse_duration(text: str) -> float | None:
    """None: it is no time."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not re.fullmatch(f"(?:{_PARTS.pattern})+", text):
        return None
    return sum(float(number) * SECONDS[unit] for number, unit in _PARTS.findall(text))
