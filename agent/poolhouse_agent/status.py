"""The status of the application, as the status of a Pod."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from poolhouse_agent.application import Application, Container
from poolhouse_agent.plan import is_finished, is_initialized
from poolhouse_agent.state import ENDED, RUNNING, ApplicationState, ContainerState, End

Json = dict[str, Any]


def pod_status(application: Application, state: ApplicationState) -> Json:
    initialized = is_initialized(application, state)
    return {
        "phase": phase(application, state),
        "reason": state.reason,
        "message": state.message or _first_problem(application, state),
        "startTime": _time(state.launched_at),
        "initContainerStatuses": [_init_status(each, state.of(each)) for each in application.init_containers],
        "containerStatuses": [_status(each, state.of(each), initialized) for each in application.containers],
    }


def phase(application: Application, state: ApplicationState) -> str:
    """The phase, by the rules of the kubelet."""
    states = [state.of(each) for each in application.containers]
    if is_finished(application, state):
        ends = [each.end for each in states]
        return "Succeeded" if all(end is not None and end.exit_code == 0 for end in ends) else "Failed"
    if not is_initialized(application, state) or any(each.phase != RUNNING and each.end is None for each in states):
        return "Pending"
    return "Running"


def _status(container: Container, state: ContainerState, initialized: bool) -> Json:
    terminated = None if state.end is None else {"terminated": _terminated(state.end)}
    if state.phase == RUNNING:
        now: Json = {"running": {"startedAt": _time(state.started_at)}}
    elif state.phase == ENDED and terminated is not None:
        now = terminated
    else:
        reason = state.reason or ("ContainerCreating" if initialized else "PodInitializing")
        now = {"waiting": {"reason": reason, "message": state.message}}
    return {
        "name": container.name,
        "state": now,
        "lastState": terminated if terminated is not None and now is not terminated else {},
        "ready": state.is_ready(container),
        "started": state.is_started(container),
        "restartCount": state.restarts,
        "image": container.image,
    }


def _init_status(container: Container, state: ContainerState) -> Json:
    """An init container that has succeeded is ready."""
    succeeded = state.phase == ENDED and state.end is not None and state.end.exit_code == 0
    return {**_status(container, state, True), "ready": succeeded}


def _terminated(end: End) -> Json:
    found: Json = {"exitCode": end.exit_code, "reason": end.reason or ("Error" if end.exit_code else "Completed")}
    found |= {"signal": end.signal} if end.signal else {}
    found |= {"message": end.message} if end.message else {}
    found |= {"startedAt": _time(end.started_at)} if end.started_at else {}
    return {**found, "finishedAt": _time(end.finished_at)}


def _first_problem(application: Application, state: ApplicationState) -> str:
    """What the first container waits for, or how the first container failed."""
    for container in application.all_containers:
        own = state.of(container)
        if own.message:
            return f"container {container.name}: {own.message}"
        if own.phase == ENDED and own.end is not None and own.end.exit_code:
            return f"container {container.name} has exited with code {own.end.exit_code}"
    return ""


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
