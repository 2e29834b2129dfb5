"""What an agent reports about an application, as `status.application` of its claim.

The agent runs in a VM that belongs to the claim's user, so its words may be anything. They are cut to the bounds of the
schema: a report must not prevent a write of the claim's status, nor fill the API server's store.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from controllers.shared.pod_claims import LOST_EXIT_CODE
from controllers.warmpool.agent import MAX_CONTAINERS, ApplicationHealth, application_health
from controllers.warmpool.agent_reasons import AgentReason
from controllers.warmpool.backends import Health
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.application import Application, InitContainer
from poolhouse.api.kinds.application_status import ApplicationPhase, ApplicationStatus

PHASES = frozenset(get_args(ApplicationPhase))
MAX_REASON, MAX_MESSAGE = 256, 4096
LOST_REASON = AgentReason.APPLICATION_LOST
LOST_MESSAGE = "the agent has no application any more: its guest, or the agent itself, has started again"

STARTING_SECONDS = 30.0
"""time for which an agent that has accepted an application may report nothing about it"""

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Accepted:
    """An application in a VM that was handed over: its agent has accepted it, and it is launched no second time."""

    application: Application | None
    """None if the agent has chosen it"""
    reported: ApplicationStatus
    """the status by an earlier answer; without a phase, if there was none"""
    seconds: float
    """time since the VM was handed over"""


def application_status(health: Health | None, accepted: Accepted | None = None) -> ApplicationStatus | None:
    """The status by the agent's last answer. None without an answer, so that the status keeps what it says."""
    if not isinstance(health, ApplicationHealth):
        return None
    report = health.status
    if accepted is not None and (end := _end_without_report(health, accepted)) is not None:
        return end if end != accepted.reported else None
    if not any(report.values()) and health.reason != AgentReason.APPLICATION_STARTING:
        return None  # it has accepted the application, and not answered since
    phase = report.get("phase") or ""
    found = {
        **_copied(report, "startTime"),
        **_words(report),
        "phase": phase if phase in PHASES else "Unknown",
        "initContainers": _containers(report.get("initContainerStatuses") or ()),
        "containers": _containers(report.get("containerStatuses") or ()),
    }
    return ApplicationStatus.model_validate(found)


def judged(health: Health | None, accepted: Accepted | None) -> Health | None:
    """The health by the agent's last answer and by what is known of the application from before."""
    if health is None or accepted is None or (end := _end_without_report(health, accepted)) is None:
        return health
    if end.reason == LOST_REASON:
        return ApplicationHealth("Failed", AgentReason.APPLICATION_LOST, LOST_MESSAGE)
    return application_health({"phase": end.phase, "reason": end.reason, "message": end.message})


def _end_without_report(health: Health, accepted: Accepted) -> ApplicationStatus | None:
    """The end of an application of which its agent has nothing: the agent has lost it, with its guest, unless the
    application had ended before. None if the agent says something, or may still start the application."""
    if not isinstance(health, ApplicationHealth) or health.reason != AgentReason.APPLICATION_STARTING:
        return None
    if any(health.status.values()):
        return None
    if accepted.reported.phase in ("Succeeded", "Failed"):
        return accepted.reported
    return _lost(accepted) if _is_lost(accepted) else None


def _is_lost(accepted: Accepted) -> bool:
    """Whether an agent that has nothing of the application has lost it. The answer that said more may be lost, too."""
    if accepted.reported.phase:
        return True
    return accepted.application is not None and accepted.seconds >= STARTING_SECONDS


def _lost(accepted: Accepted) -> ApplicationStatus:
    """The end of an application that nobody has seen. Its containers have the kubelet's exit code for it, and
    the reason, which `kubectl get pods` shows."""
    found, application = accepted.reported.json(), accepted.application
    init_containers, containers = (application.init_containers, application.containers) if application else (None, None)
    found |= {
        "initContainers": _lost_containers(found.get("initContainers", ()), init_containers),
        "containers": _lost_containers(found.get("containers", ()), containers),
        "phase": "Failed",
        "reason": LOST_REASON,
        "message": LOST_MESSAGE,
    }
    return ApplicationStatus.model_validate(found)


def _lost_containers(reported: Iterable[Json], declared: Iterable[InitContainer] | None) -> list[Json]:
    """The ends of the declared containers; of the reported ones if the agent has chosen the application."""
    known = {each["name"]: each for each in reported}
    names = known if declared is None else [each.name for each in declared]
    return [_lost_container(known.get(name, {"name": name})) for name in names]


def _lost_container(before: Json) -> Json:
    if "terminated" in (state := before.get("state") or {}):
        return before
    ended = {"exitCode": LOST_EXIT_CODE, "reason": LOST_REASON, "message": LOST_MESSAGE}
    ended |= _copied(state.get("running") or {}, "startedAt")
    return {**before, "ready": False, "started": False, "state": {"terminated": ended}}


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
