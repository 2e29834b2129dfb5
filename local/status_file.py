"""What the supervisor tells of itself, in DIR/status.json, and what others read there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from local.supervisor import ComponentState

Phase = Literal["starting", "ready", "ending", "ended", "broken"]


@dataclass(frozen=True)
class StackStatus:
    """One stack, as of a moment."""

    phase: Phase
    pid: int
    engine: str
    without: tuple[str, ...]
    components: tuple[ComponentState, ...]
    since: str
    """when the phase began"""
    message: str = ""

    def json(self) -> dict[str, Any]:
        components = [
            {"name": p.name, "pid": p.pid, "ready": p.ready, "restarts": p.restarts, "exitCode": p.exit_code}
            for p in self.components
        ]
        return {
            "phase": self.phase,
            "pid": self.pid,
            "since": self.since,
            "engine": self.engine,
            "without": list(self.without),
            "message": self.message,
            "parts": components,
        }

    @classmethod
    def read(cls, path: Path) -> StackStatus | None:
        try:
            found = json.loads(path.read_text())
            components = tuple(
                ComponentState(p["name"], p["pid"], p["ready"], p["restarts"], p["exitCode"]) for p in found["parts"]
            )
            without = tuple(found["without"])
            return cls(
                found["phase"], found["pid"], found["engine"], without, components, found["since"], found["message"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None


class StatusFile:
    """Keeps the file."""

    def __init__(self, path: Path, engine: str, without: Iterable[str]) -> None:
        self._path, self._engine, self._without = path, engine, tuple(sorted(without))
        self._phase: Phase = "starting"
        self._since = _now()
        self._message = ""
        self.states: dict[str, ComponentState] = {}
        self._write()

    def phase(self, phase: Phase, message: str = "") -> None:
        self._phase, self._message, self._since = phase, message, _now()
        self._write()

    def component(self, state: ComponentState) -> None:
        self.states[state.name] = state
        self._write()

    def _write(self) -> None:
        components = tuple(self.states.values())
        report = StackStatus(
            self._phase, os.getpid(), self._engine, self._without, components, self._since, self._message
        )
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(json.dumps(report.json(), indent=2) + "\n")
            draft.replace(self._path)
        except OSError:
            pass  # a full disk ends no stack for the sake of its report, and hides no reason why one ends


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
