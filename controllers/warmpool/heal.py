"""Machines that are not as they should be: they leave the queue, and when they don't recover, the pool.

Unhealthy is what was checked and failed. Unknown is what could not be checked: that says nothing about the machine, so
it is neither given away nor replaced nor deleted until it can be checked again, or its node is given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, CountFailedCheck, DeleteVM, SetState
from controllers.warmpool.snapshot import NOT_CHECKED, VMHealth, WarmPoolSnapshot, waits_for_scheduling
from controllers.warmpool.warm_vm import WarmVM, seconds_since
from kinds.warm_states import WarmState

NODE_SECONDS = 300.0
"""How long a machine on a node that does not answer is waited for: as long as Kubernetes waits with its pods."""


def update_health_states(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    for m in state.in_state(WarmState.READY, WarmState.STANDING_BY, WarmState.UNKNOWN):
        vital = state.vital(m)
        verdict = vital.waiting if m.state is not WarmState.STANDING_BY else vital.awake
        if verdict == NOT_CHECKED:  # of a process that has just begun: it is about to be asked
            continue
        if verdict.verdict == "Unable":
            if m.state is not WarmState.UNKNOWN:
                yield SetState(m, WarmState.UNKNOWN, verdict.message)
            elif seconds_since(m.state_since, now) >= NODE_SECONDS:
                yield SetState(
                    m, WarmState.UNHEALTHY, f"for {NODE_SECONDS:.0f} s it could not be checked: {verdict.message}"
                )
        elif m.state is WarmState.STANDING_BY:
            if seconds_since(m.state_since, now) >= state.pool.spec.readiness.timeout_seconds:
                yield SetState(
                    m, WarmState.UNHEALTHY, f"it did not become {m.standby.lower()}: {vital.waiting.message}"
                )
        elif verdict.verdict == "Healthy":
            if m.state is WarmState.UNKNOWN:
                yield SetState(m, WarmState.READY, "it can be checked again, and is healthy")
        elif m.standby != "Running" and vital.awake.verdict == "Healthy":
            yield SetState(m, WarmState.STANDING_BY, f"it is well, but {verdict.message}")
        elif vital.failing >= state.pool.spec.health.failure_threshold:
            yield SetState(m, WarmState.UNHEALTHY, f"{vital.failing} checks in a row failed: {verdict.message}")


def delete_unhealthy(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    threshold = state.pool.spec.health.terminate_threshold
    for m in state.in_state(WarmState.UNHEALTHY):
        vital = state.vital(m)
        if _recovered(vital):
            yield SetState(m, WarmState.PROVISIONING, "it answers again")
        elif vital.period_over and m.check_failures < threshold:
            yield CountFailedCheck(m, m.check_failures + 1, vital.waiting.message)
    if not mass_failure(state) and not state.pool.spec.paused:
        for m in failed_for_long(state):
            why = f"unhealthy for {threshold} more checks: {state.vital(m).waiting.message}"
            yield DeleteVM(m, "Unhealthy", why)


def delete_not_ready(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Replaced one by one while many fail: another one would fail too, and the first may still come."""
    late = sorted(past_readiness_timeout(state, now), key=lambda m: (m.state_since, m.uid))
    if state.pool.spec.paused or (state.breaker_open and not state.failures.due(now)):
        return
    for m in late[:1] if state.breaker_open else late:
        vital = state.vital(m)
        seconds = state.pool.spec.readiness.timeout_seconds
        yield DeleteVM(m, "ReadinessTimeout", f"not healthy within {seconds} s: {vital.awake.message}")


def mass_failure(state: WarmPoolSnapshot) -> bool:
    """More are unhealthy than are there for claims, and those are too few: that is hardly the machines' fault, and
    deleting them would only destroy what could be looked at."""
    there = len(state.available)
    return there < state.target and len(state.in_state(WarmState.UNHEALTHY)) > there


def failed_for_long(state: WarmPoolSnapshot) -> list[WarmVM]:
    """Those that were unhealthy for so long that they are not waited for."""
    threshold = state.pool.spec.health.terminate_threshold
    found = state.in_state(WarmState.UNHEALTHY)
    return [m for m in found if m.check_failures >= threshold and not _recovered(state.vital(m))]


def past_readiness_timeout(state: WarmPoolSnapshot, now: datetime) -> list[WarmVM]:
    """One that is held is not late, a new one would wait just as long; its time begins when it is let go."""
    found = state.in_state(WarmState.PROVISIONING)
    return [
        m
        for m in found
        if state.vital(m).awake.verdict != "Healthy" and not waits_for_scheduling(m) and _left(state, m, now) <= 0
    ]


def seconds_until_timeout(state: WarmPoolSnapshot, now: datetime) -> float | None:
    """When time alone changes what is decided here."""
    ends = [_left(state, m, now) for m in state.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY)]
    ends += [NODE_SECONDS - seconds_since(m.state_since, now) for m in state.in_state(WarmState.UNKNOWN)]
    return min((left for left in ends if left > 0), default=None)


def _left(state: WarmPoolSnapshot, m: WarmVM, now: datetime) -> float:
    """Until it should have left its state."""
    waited = min(seconds_since(m.state_since, now), state.vital(m).held_ago)
    return state.pool.spec.readiness.timeout_seconds - waited


def _recovered(vital: VMHealth) -> bool:
    return "Healthy" in (vital.waiting.verdict, vital.awake.verdict)
