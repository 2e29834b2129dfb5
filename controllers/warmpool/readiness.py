"""From made to Ready: what is found healthy gets into the queue, by way of its standby."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, Move, Rest
from controllers.warmpool.snapshot import State
from controllers.warmpool.warm_vm import Machine
from kinds.warm import Warm


def machines_are_healthy(state: State, now: datetime) -> Iterator[Action]:
    for m in state.in_state(Warm.PROVISIONING):
        if asleep(m):
            # It was Unhealthy in its sleep, and answers again: only awake does it show what that is worth.
            yield Rest(m, "Running", "it has to be checked awake")
        elif state.vital(m).awake.verdict == "Healthy" and _patience_left(state, m) <= 0:
            if m.standby == "Running":
                yield Move(m, Warm.READY, "it is healthy")
            else:
                yield Move(m, Warm.STANDING_BY, f"it is healthy, and is to wait {m.standby.lower()}")


def machines_lie_down(state: State, now: datetime) -> Iterator[Action]:
    for m in state.in_state(Warm.STANDING_BY):
        vital = state.vital(m)
        if vital.waiting.verdict == "Healthy":
            yield Move(m, Warm.READY, f"it is {m.standby.lower()}")
        elif m.standby != "Paused" or vital.awake.verdict == "Healthy":
            yield Rest(m, m.standby, f"it is to wait {m.standby.lower()}")
        elif m.strategy == "Halted":
            yield Rest(m, "Running", "only what runs can be paused")


def seconds_until_ripe(state: State, now: datetime) -> float | None:
    healthy = (m for m in state.in_state(Warm.PROVISIONING) if state.vital(m).awake.verdict == "Healthy")
    return min((left for m in healthy if (left := _patience_left(state, m)) > 0), default=None)


def asleep(m: Machine) -> bool:
    """By our own doing."""
    return m.strategy == "Halted" or (m.guest is not None and m.guest.running and bool(m.guest.paused))


def _patience_left(state: State, m: Machine) -> float:
    """How long it has to stay healthy yet. One that is put to sleep has time to finish what guests do at boot."""
    spec = state.pool.spec
    warm_up = spec.standby.warmup_seconds if m.standby != "Running" else 0
    return max(spec.readiness.min_ready_seconds, warm_up) - state.vital(m).well_seconds
