"""Decides what the agent does next with the containers of an application."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from poolhouse_agent.application import Application, Container
from poolhouse_agent.state import ENDED, RUNNING, STARTING, WAITING, ApplicationState, ContainerState


@dataclass(frozen=True)
class Start:
    container: str


@dataclass(frozen=True)
class RunProbe:
    container: str
    kind: str


@dataclass(frozen=True)
class Stop:
    container: str
    kill: bool = False


@dataclass(frozen=True)
class CleanUp:
    """Remove the volumes. All containers have ended."""


@dataclass(frozen=True)
class Wait:
    """Decide again at this time."""

    until: float


Action = Start | RunProbe | Stop | CleanUp


def plan(application: Application, state: ApplicationState, now: float) -> tuple[tuple[Action, ...], float | None]:
    """Returns the actions for now, and the time at which the next decision is due."""
    found = [*_steps(application, state, now)]
    times = [each.until for each in found if isinstance(each, Wait)]
    return tuple(each for each in found if not isinstance(each, Wait)), min(times, default=None)


def is_finished(application: Application, state: ApplicationState) -> bool:
    """Whether no container runs, and none will be started."""
    if any(each.phase in (STARTING, RUNNING) for each in state.containers.values()):
        return False
    if state.is_stopping or state.reason or _failed_init(application, state):
        return True
    return all(state.of(each).phase == ENDED for each in application.containers)


def is_initialized(application: Application, state: ApplicationState) -> bool:
    return all(_succeeded(state.of(each)) for each in application.init_containers)


def _steps(application: Application, state: ApplicationState, now: float) -> Iterator[Action | Wait]:
    if is_finished(application, state):
        if not state.cleaned_up:
            yield CleanUp()
        return
    if state.is_stopping:
        for container in application.all_containers:
            own = state.of(container)
            if own.phase == RUNNING:
                yield from _stop(container, own, min(t for t in (own.kill_at, state.kill_at) if t is not None), now)
        return
    for container in _wanted(application, state):
        own = state.of(container)
        if own.phase == WAITING:
            yield Start(container.name) if own.not_before <= now else Wait(own.not_before)
        elif own.phase == RUNNING and own.kill_at is not None:
            yield from _stop(container, own, own.kill_at, now)
        elif own.phase == RUNNING:
            yield from _probes(container, own, now)


def _wanted(application: Application, state: ApplicationState) -> tuple[Container, ...]:
    """Init containers run one after the other, the others side by side."""
    for container in application.init_containers:
        if not _succeeded(state.of(container)):
            return (container,)
    return application.containers


def _stop(container: Container, state: ContainerState, kill_at: float, now: float) -> Iterator[Action | Wait]:
    """Without a grace period, SIGTERM does not come first: which of the two ends the container would be chance."""
    if kill_at <= now:
        if state.signals < 2:
            yield Stop(container.name, kill=True)
        return
    if state.signals == 0:
        yield Stop(container.name)
    if state.signals < 2:
        yield Wait(kill_at)


def _probes(container: Container, state: ContainerState, now: float) -> Iterator[Action | Wait]:
    is_started = state.is_started(container)
    for kind, known in state.probes.items():
        if known.running or is_started == (kind == "startup"):
            continue
        yield RunProbe(container.name, kind) if known.due <= now else Wait(known.due)


def _succeeded(state: ContainerState) -> bool:
    return state.phase == ENDED and state.end is not None and state.end.exit_code == 0


def _failed_init(application: Application, state: ApplicationState) -> bool:
    states = (state.of(each) for each in application.init_containers)
    return any(each.phase == ENDED and not _succeeded(each) for each in states)
