"""Keeps the application over a restart of the agent.

The Pod, which may contain Secrets, is in the runtime directory: systemd keeps it in memory, so that it is gone after a
reboot of the VM. The state of the containers is on disk, so that the agent can say that the VM was rebooted. It is
there before the agent accepts the Pod, even if the VM loses its power in this moment: whoever does not know whether a
launch was accepted sends it again, and the application may have run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from poolhouse_agent.state import UNKNOWN, ApplicationState, ContainerState, End, ProbeState

Json = dict[str, Any]

REBOOTED = "VMRebooted"


@dataclass(frozen=True)
class Record:
    """What an earlier agent has written."""

    uid: str
    pod: bytes | None
    """None after a reboot of the VM"""
    state: ApplicationState
    status: Json


class Store:
    def __init__(self, runtime: Path, state: Path) -> None:
        self._pod, self._state = runtime / "pod", state / "state.json"
        self._written = ""

    def begin(self, pod: bytes) -> None:
        self._state.unlink(missing_ok=True)
        self._written = ""
        _replace(self._pod, pod)

    def save(self, uid: str, state: ApplicationState, status: Json) -> None:
        """Writes only what has changed: most results of probes change nothing."""
        text = json.dumps({"uid": uid, "state": asdict(_without_times(state)), "status": status})
        if text != self._written:
            is_new = not self._state.exists()
            _replace(self._state, text.encode())
            if is_new:
                _flush(self._state.parent)
            self._written = text

    def load(self, now: float) -> Record | None:
        if not self._state.exists():
            return None
        found = json.loads(self._state.read_text())
        pod = self._pod.read_bytes() if self._pod.exists() else None
        return Record(found["uid"], pod, _parsed(found["state"], now), found["status"])


def after_reboot(status: Json) -> Json:
    """The status of an application that a reboot of the VM has ended."""
    if status["phase"] in ("Succeeded", "Failed"):
        return status
    message = "the VM was rebooted while the application ran"
    unknown = {"terminated": {"exitCode": 137, "reason": UNKNOWN, "message": message}}
    lists: Json = {
        name: [
            each if "terminated" in each["state"] else {**each, "state": unknown, "ready": False, "started": False}
            for each in status[name]
        ]
        for name in ("initContainerStatuses", "containerStatuses")
    }
    return {**status, **lists, "phase": "Failed", "reason": REBOOTED, "message": message}


def _without_times(state: ApplicationState) -> ApplicationState:
    containers = {
        name: replace(each, probes={kind: ProbeState(0, passed=probe.passed) for kind, probe in each.probes.items()})
        for name, each in state.containers.items()
    }
    return replace(state, containers=containers)


def _parsed(found: Json, now: float) -> ApplicationState:
    containers = {name: _container(each, now) for name, each in found["containers"].items()}
    return ApplicationState(**{**_known(ApplicationState, found), "containers": containers})


def _container(found: Json, now: float) -> ContainerState:
    probes: Mapping[str, Json] = found["probes"]
    parsed = {kind: ProbeState(now, passed=each["passed"]) for kind, each in probes.items()}
    end = End(**_known(End, found["end"])) if found["end"] else None
    return ContainerState(**{**_known(ContainerState, found), "end": end, "probes": parsed})


def _known(kind: type[Any], found: Json) -> Json:
    """The fields without those of a newer agent, after which an older one was installed."""
    return {each.name: found[each.name] for each in fields(kind) if each.name in found}


def _flush(directory: Path) -> None:
    """Returns when the disk has the names of the files."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    """A loss of power leaves the old content or the new one, and never half of it or an empty file."""
    draft = path.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)
