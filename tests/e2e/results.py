"""The table of results: a row for each test, with what it measured, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest

Json = dict[str, Any]
Outcome = Literal["passed", "failed", "skipped"]
CLUSTER = "cluster"
ROW = "row"
INTERRUPTED = "it was interrupted"


@dataclass(frozen=True)
class Row:
    area: str
    what: str
    outcome: Outcome
    seconds: float = 0.0
    note: str = ""
    """why the test was skipped, or the error in one line"""
    measured: Json = field(default_factory=dict)


class Results:
    """A pytest plugin that collects a row for each test of this directory and writes the table at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._rows: dict[str, Row] = {}
        self._cluster = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: dict[str, Any] = dict(report.user_properties)
        if ROW not in properties:
            return
        self._cluster = str(properties.get(CLUSTER) or self._cluster)
        outcome: Outcome = report.outcome
        if report.when != "teardown" or outcome != "passed":
            area, what = properties[ROW]
            measured = {name: value for name, value in properties.items() if name not in (ROW, CLUSTER)}
            note = "" if outcome == "passed" else _reason(report)
            if report.when == "setup" and outcome == "passed":
                outcome, note = "failed", INTERRUPTED
            self._rows[report.nodeid] = Row(area, what, outcome, round(report.duration, 1), note, measured)

    def pytest_sessionfinish(self) -> None:
        rows = [self._rows[each] for each in sorted(self._rows)]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(markdown(self._cluster, rows))
        content = {"cluster": self._cluster, "date": date.today().isoformat(), "results": [asdict(row) for row in rows]}
        self._file.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n")


def markdown(cluster: str, rows: Iterable[Row]) -> str:
    rows = list(rows)
    counts = {each: sum(row.outcome == each for row in rows) for each in ("passed", "failed", "skipped")}
    lines = [
        f"{cluster}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()),
        "",
        "| Area | What | Result |",
        "| --- | --- | --- |",
    ]
    for row in rows:
        measured = [f"{name} {value}" for name, value in row.measured.items()]
        result = ", ".join([row.outcome, *([f"{row.seconds:g} s"] if row.outcome != "skipped" else ()), *measured])
        lines.append(
            f"| {_cell(row.area)} | {_cell(row.what)} | {_cell(result + (f': {row.note}' if row.note else ''))} |"
        )
    return "\n".join(lines) + "\n"


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr).splitlines()[0]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
