"""What an agent reports about an application, as `status.application` of its claim.

The agent runs in a VM that belongs to the claim's user, so its words may be anything. They are cut to the bounds of the
schema: a report must not prevent a write of the claim's status, nor fill the API server's store.
"""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from controllers.warmpool.agent import ApplicationHealth
from controllers.warmpool.backends import Health
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.application_status import ApplicationPhase, ApplicationStatus

PHASES = frozenset(get_args(ApplicationPhase))
MAX_CONTAINERS = 16
MAX_REASON, MAX_MESSAGE = 256, 4096
LOST_EXIT_CODE = 137
LOST_REASON = "ApplicationLost"
LOST_MESSAGE = "the agent has no application any more: its guest, or the agent itself, has started again"

Report = Mapping[str, Any]


def application_status(health: Health | None, before: ApplicationStatus | None = None) -> ApplicationStatus | None:
    """The status by the agent's last answer. None without an answer, so that the status keeps what it says. `before` is
    the status in a VM that was handed over: an agent that has no application any more has lost it, with its guest."""
    if not isinstance(health, ApplicationHealth):
        return None
    report = health.status
    phase = report.get("phase") or ""
    if not phase and before is not None and before.phase in ("Running", "Succeeded", "Failed"):
        return _lost(before) if before.phase == "Running" else None
    found = {
        **_copied(report, "startTime"),
        **_words(report),
        "phase": phase if phase in PHASES else "Unknown",
        "initContainers": _containers(report.get("initContainerStatuses") or ()),
        "containers": _containers(report.get("containerStatuses") or ()),
    }
    return ApplicationStatus.model_validate(found)


def _lost(before: ApplicationStatus) -> ApplicationStatus:
    """The end of an application that nobody has seen. Its containers have the kubelet's exit code for it, and
    the reason, which `kubectl get pods` shows."""
    found = before.json()
    for container in (*found["initContainers"], *found["containers"]):
        if "terminated" not in (state := container.get("state") or {}):
            ended = {"exitCode": LOST_EXIT_CODE, "reason": LOST_REASON, "message": LOST_MESSAGE}
            ended |= _copied(state.get("running") or {}, "startedAt")
            container |= {"ready": False, "started": False, "state": {"terminated": ended}}
    found |= {"phase": "Failed", "reason": LOST_REASON, "message": LOST_MESSAGE}
    return ApplicationStatus.model_validate(found)


def _containers(reports: Iterable[Report]) -> list[Json]:
    named = {str(each.get("name") or "")[:MAX_REASON]: each for each in reports}
    return [_container(name, each) for name, each in list(named.items())[:MAX_CONTAINERS]]


def _container(name: str, report: Report) -> Json:
    states = {field: _state(report[field]) for field in ("state", "lastState") if report.get(field)}
    restarts = max(0, report.get("restartCount", 0))
    return {"name": name, **_copied(report, "ready", "started"), "restartCount": restarts, **states}


def _state(report: Report) -> Json:
    """The state, with the field that says most if the agent sends several."""
    if (ended := report.get("terminated")) is not None:
        return {"terminated": {**_copied(ended, "exitCode", "signal", "startedAt", "finishedAt"), **_words(ended)}}
    if (running := report.get("running")) is not None:
        return {"running": _copied(running, "startedAt")}
    return {"waiting": _words(report.get("waiting") or {})}


def _copied(report: Report, *fields: str) -> Json:
    return {field: report[field] for field in fields if report.get(field) is not None}


def _words(report: Report) -> Json:
    return {
        "reason": str(report.get("reason") or "")[:MAX_REASON],
        "message": str(report.get("message") or "")[:MAX_MESSAGE],
    }
