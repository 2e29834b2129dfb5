"""The state of an application, and how each event changes it. Restarts and probes follow the kubelet.

All times are seconds since the epoch, so that they keep their meaning when the agent starts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from poolhouse_agent.application import Application, Container

WAITING, STARTING, RUNNING, ENDED = "Waiting", "Starting", "Running", "Ended"
UNKNOWN = "ContainerStatusUnknown"
"""the reason of an end whose exit code is not known"""
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 10.0, 300.0


@dataclass(frozen=True)
class End:
    """How a run of a container ended."""

    exit_code: int
    finished_at: float
    started_at: float = 0
    reason: str = ""
    message: str = ""
    signal: int = 0


@dataclass(frozen=True)
class ProbeState:
    due: float
    running: bool = False
    passed: bool = False
    streak: int = 0
    """successes in a row, or failures in a row as a negative number"""


@dataclass(frozen=True)
class ContainerState:
    phase: str = WAITING
    """`Ended` only if the container is not started again"""
    reason: str = ""
    """why the container waits, with its message"""
    message: str = ""
    started_at: float = 0
    end: End | None = None
    """of the newest run that has ended"""
    restarts: int = 0
    backoff: float = 0
    """pause in seconds between the end of this run and the start of the next run"""
    refusals: int = 0
    """attempts in a row in which no process could be started"""
    not_before: float = 0
    kill_at: float | None = None
    """when SIGKILL follows SIGTERM; None if the container is not being stopped"""
    signals: int = 0
    """signals that were sent to stop the container"""
    probes: Mapping[str, ProbeState] = field(default_factory=dict)

    def is_started(self, container: Container) -> bool:
        return self.phase == RUNNING and ("startup" not in container.probes or self.probes["startup"].passed)

    def is_ready(self, container: Container) -> bool:
        passed = "readiness" not in container.probes or (self.phase == RUNNING and self.probes["readiness"].passed)
        return self.is_started(container) and passed and self.kill_at is None


@dataclass(frozen=True)
class ApplicationState:
    launched_at: float
    containers: Mapping[str, ContainerState]
    kill_at: float | None = None
    """when the grace period ends; None if the application is not being terminated"""
    cleaned_up: bool = False
    reason: str = ""
    """why the application has failed, with its message, if no container says so"""
    message: str = ""

    @property
    def is_stopping(self) -> bool:
        return self.kill_at is not None

    def of(self, container: Container) -> ContainerState:
        return self.containers[container.name]

    def with_container(self, name: str, state: ContainerState) -> ApplicationState:
        return replace(self, containers={**self.containers, name: state})


def launched(application: Application, now: float) -> ApplicationState:
    return ApplicationState(now, {each.name: ContainerState() for each in application.all_containers})


def starting(state: ContainerState) -> ContainerState:
    """`restarts` counts the runs that have ended, so that it also names the files of the new run."""
    return replace(state, phase=STARTING, reason=state.reason or "ContainerCreating")


def started(container: Container, state: ContainerState, now: float) -> ContainerState:
    return replace(
        state,
        phase=RUNNING,
        reason="",
        message="",
        started_at=now,
        refusals=0,
        kill_at=None,
        signals=0,
        backoff=min(max(2 * state.backoff, FIRST_BACKOFF_SECONDS), MAX_BACKOFF_SECONDS) if state.end else 0,
        probes={kind: ProbeState(now + probe.initial_delay) for kind, probe in container.probes.items()},
    )


def refused(state: ContainerState, reason: str, message: str, now: float) -> ContainerState:
    """No process could be started, for example because the image could not be pulled. The attempt is repeated later."""
    wait = min(FIRST_BACKOFF_SECONDS * 2**state.refusals, MAX_BACKOFF_SECONDS)
    return replace(
        state, phase=WAITING, reason=reason, message=message, refusals=state.refusals + 1, not_before=now + wait
    )


def exited(application: Application, container: Container, state: ApplicationState, end: End) -> ApplicationState:
    """The first restart is immediate. Later ones wait 10 s after the end, then twice as long each time, up to 5 min."""
    own = state.of(container)
    wait = 0.0 if end.finished_at - end.started_at > 2 * MAX_BACKOFF_SECONDS else own.backoff
    own = replace(own, end=end, kill_at=None, signals=0, probes={})
    if state.is_stopping or not restarts_after(application, container, end.exit_code):
        return state.with_container(container.name, replace(own, phase=ENDED))
    message = f"back-off {wait:g}s restarting container {container.name}" if wait else ""
    again = replace(
        own,
        phase=WAITING,
        reason="CrashLoopBackOff",
        message=message,
        restarts=own.restarts + 1,
        backoff=wait,
        not_before=end.finished_at + wait,
    )
    return state.with_container(container.name, again)


def restarts_after(application: Application, container: Container, exit_code: int) -> bool:
    if application.restart_policy == "Always" and container in application.containers:
        return True
    return application.restart_policy != "Never" and exit_code != 0


def probing(state: ContainerState, kind: str) -> ContainerState:
    if kind not in state.probes:  # The run has ended in the meantime.
        return state
    return replace(state, probes={**state.probes, kind: replace(state.probes[kind], running=True)})


def probed(
    application: Application, container: Container, state: ContainerState, kind: str, success: bool, now: float
) -> ContainerState:
    """A result counts after enough equal ones in a row. A failed startup or liveness probe stops the container."""
    if state.phase != RUNNING or kind not in state.probes:
        return state
    probe, known = container.probes[kind], state.probes[kind]
    streak = max(known.streak, 0) + 1 if success else min(known.streak, 0) - 1
    passed = known.passed
    if streak >= probe.successes:
        passed = True
    elif -streak >= probe.failures:
        passed = False
    state = replace(state, probes={**state.probes, kind: ProbeState(now + probe.period, False, passed, streak)})
    if -streak >= probe.failures and kind != "readiness" and state.kill_at is None:
        grace = application.grace_seconds if probe.grace_seconds is None else probe.grace_seconds
        return replace(state, kill_at=now + grace)
    return state


def signalled(state: ContainerState) -> ContainerState:
    return replace(state, signals=state.signals + 1)


def terminating(state: ApplicationState, grace_seconds: float, now: float) -> ApplicationState:
    """A later request can only shorten the grace period."""
    kill_at = now + grace_seconds
    return replace(state, kill_at=kill_at if state.kill_at is None else min(kill_at, state.kill_at))
