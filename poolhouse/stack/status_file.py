"""Writes DIR/status.json, and trims and reads the logs of the components."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.stack.components import ComponentState

Phase = Literal["starting", "ready", "ending", "ended", "broken"]

LOG_LIMIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class StackStatus:
    phase: Phase
    pid: int
    since: str
    """time at which the phase began"""
    engine: str
    without: list[str]
    message: str
    parts: list[dict[str, Any]]
    """the components, each with name, pid, ready, restarts and exitCode"""
    total: int = 0
    """number of components that the stack has when it is ready; 0 before it is known"""

    @property
    def ready_parts(self) -> int:
        return sum(bool(part["ready"]) for part in self.parts)

    @classmethod
    def read(cls, path: Path) -> StackStatus | None:
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None


class StatusFile:
    """Writes status.json after each change of the phase or of a component."""

    def __init__(self, path: Path, engine: str, without: Iterable[str]) -> None:
        self._path, self._engine, self._without = path, engine, sorted(without)
        self.states: dict[str, ComponentState] = {}
        self.total = 0
        self.set_phase("starting")

    def set_phase(self, phase: Phase, message: str = "") -> None:
        self._phase, self._message, self._since = phase, message, format_time(datetime.now(UTC))
        self._write()

    def set_component(self, state: ComponentState) -> None:
        self.states[state.name] = state
        self._write()

    def _write(self) -> None:
        parts = [
            {"name": s.name, "pid": s.pid, "ready": s.ready, "restarts": s.restarts, "exitCode": s.exit_code}
            for s in self.states.values()
        ]
        status = StackStatus(
            self._phase, os.getpid(), self._since, self._engine, self._without, self._message, parts, self.total
        )
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(json.dumps(vars(status), indent=2) + "\n")
            draft.replace(self._path)
        except OSError:
            pass  # A full disk must not stop the stack or hide another error.


def trim_log(log: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> bool:
    """Copies a log over the limit to `<log>.1` and truncates the log. Loses lines that are written in between."""
    if not log.exists() or log.stat().st_size <= limit_bytes:
        return False
    shutil.copyfile(log, log.with_suffix(log.suffix + ".1"))
    os.truncate(log, 0)
    return True


def tail(log: Path, lines: int = 10, width: int = 300) -> str:
    """Returns the last lines of a log, truncated to the width."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 64 * 1024))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(line[:width] for line in text.splitlines()[-lines:])
