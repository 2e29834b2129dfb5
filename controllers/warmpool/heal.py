"""Machines that are not as they should be: they leave the queue, and when they don't recover, the pool.

Unhealthy is what was checked and failed. Unknown is what could not be checked: that says nothing about the machine, so
it is neither given away nor replaced nor deleted until it can be checked again, or its node is given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, Count, Move, Terminate
from controllers.warmpool.snapshot import NOTHING_KNOWN, State, Vital, held
from controllers.warmpool.warm_vm import Machine, seconds_since
from kinds.warm import Warm

NODE_SECONDS = 300.0
"""How long a machine on a node that does not answer is waited for: as long as Kubernetes waits with its pods."""


def machines_fail_their_checks(state: State, now: datetime) -> Iterator[Action]:
    for m in state.in_state(Warm.READY, Warm.STANDING_BY, Warm.UNKNOWN):
        vital = state.vital(m)
        verdict = vital.waiting if m.state is not Warm.STANDING_BY else vital.awake
        if verdict == NOTHING_KNOWN:  # of a process that has just begun: it is about to be asked
            continue
        if verdict.verdict == "Unable":
            if m.state is not Warm.UNKNOWN:
                yield Move(m, Warm.UNKNOWN, verdict.message)
            elif seconds_since(m.since, now) >= NODE_SECONDS:
                yield Move(m, Warm.UNHEALTHY, f"for {NODE_SECONDS:.0f} s it could not be checked: {verdict.message}")
        elif m.state is Warm.STANDING_BY:
            if seconds_since(m.since, now) >= state.pool.spec.readiness.timeout_seconds:
                yield Move(m, Warm.UNHEALTHY, f"it did not become {m.standby.lower()}: {vital.waiting.message}")
        elif verdict.verdict == "Healthy":
            if m.state is Warm.UNKNOWN:
                yield Move(m, Warm.READY, "it can be checked again, and is healthy")
        elif m.standby != "Running" and vital.awake.verdict == "Healthy":
            yield Move(m, Warm.STANDING_BY, f"it is well, but {verdict.message}")
        elif vital.failing >= state.pool.spec.health.failure_threshold:
            yield Move(m, Warm.UNHEALTHY, f"{vital.failing} checks in a row failed: {verdict.message}")


def machines_stay_unhealthy(state: State, now: datetime) -> Iterator[Action]:
    threshold = state.pool.spec.health.terminate_threshold
    for m in state.in_state(Warm.UNHEALTHY):
        vital = state.vital(m)
        if _recovered(vital):
            yield Move(m, Warm.PROVISIONING, "it answers again")
        elif vital.period_over and m.check_failures < threshold:
            yield Count(m, m.check_failures + 1, vital.waiting.message)
    if not mass_failure(state) and not state.pool.spec.paused:
        for m in tired(state):
            why = f"unhealthy for {threshold} more checks: {state.vital(m).waiting.message}"
            yield Terminate(m, "Unhealthy", why)


def machines_never_get_ready(state: State, now: datetime) -> Iterator[Action]:
    """Replaced one by one while many fail: another one would fail too, and the first may still come."""
    late = sorted(too_late(state, now), key=lambda m: (m.since, m.uid))
    if state.pool.spec.paused or (state.breaker_open and not state.failures.due(now)):
        return
    for m in late[:1] if state.breaker_open else late:
        vital = state.vital(m)
        seconds = state.pool.spec.readiness.timeout_seconds
        yield Terminate(m, "ReadinessTimeout", f"not healthy within {seconds} s: {vital.awake.message}")


def mass_failure(state: State) -> bool:
    """More are unhealthy than are there for claims, and those are too few: that is hardly the machines' fault, and
    deleting them would only destroy what could be looked at."""
    there = len(state.available)
    return there < state.target and len(state.in_state(Warm.UNHEALTHY)) > there


def tired(state: State) -> list[Machine]:
    """Those that were unhealthy for so long that they are not waited for."""
    threshold = state.pool.spec.health.terminate_threshold
    found = state.in_state(Warm.UNHEALTHY)
    return [m for m in found if m.check_failures >= threshold and not _recovered(state.vital(m))]


def too_late(state: State, now: datetime) -> list[Machine]:
    """One that is held is not late, a new one would wait just as long; its time begins when it is let go."""
    found = state.in_state(Warm.PROVISIONING)
    return [m for m in found if state.vital(m).awake.verdict != "Healthy" and not held(m) and _left(state, m, now) <= 0]


def seconds_until_late(state: State, now: datetime) -> float | None:
    """When time alone changes what is decided here."""
    ends = [_left(state, m, now) for m in state.in_state(Warm.PROVISIONING, Warm.STANDING_BY)]
    ends += [NODE_SECONDS - seconds_since(m.since, now) for m in state.in_state(Warm.UNKNOWN)]
    return min((left for left in ends if left > 0), default=None)


def _left(state: State, m: Machine, now: datetime) -> float:
    """Until it should have left its state."""
    waited = min(seconds_since(m.since, now), state.vital(m).held_ago)
    return state.pool.spec.readiness.timeout_seconds - waited


def _recovered(vital: Vital) -> bool:
    return "Healthy" in (vital.waiting.verdict, vital.awake.verdict)
