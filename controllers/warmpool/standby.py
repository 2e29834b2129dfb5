"""From created to Ready: healthy VMs enter their standby mode, then the ready queue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, SetStandby, SetState
from controllers.warmpool.rollout import disruption_budget
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.warm_vm import STANDBY_MODES, StandbyMode, WarmVM
from kinds.warm_states import WarmState


def finish_provisioning(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    for m in state.in_state(WarmState.PROVISIONING):
        if asleep(m):
            # It was Unhealthy in its sleep, and answers again: only awake does it show what that is worth.
            yield SetStandby(m, "Running", "it has to be checked awake")
        elif state.vital(m).awake.verdict == "Healthy" and _patience_left(state, m) <= 0:
            if m.standby == "Running":
                yield SetState(m, WarmState.READY, "it is healthy")
            else:
                yield SetState(m, WarmState.STANDING_BY, f"it is healthy, and is to wait {m.standby.lower()}")


def enter_standby(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    for m in state.in_state(WarmState.STANDING_BY):
        vital = state.vital(m)
        if vital.waiting.verdict == "Healthy":
            yield SetState(m, WarmState.READY, f"it is {m.standby.lower()}")
        elif m.standby != "Paused" or vital.awake.verdict == "Healthy":
            yield SetStandby(m, m.standby, f"it is to wait {m.standby.lower()}")
        elif m.run_strategy == "Halted":
            yield SetStandby(m, "Running", "only what runs can be paused")


def seconds_until_ready(state: WarmPoolSnapshot, now: datetime) -> float | None:
    healthy = (m for m in state.in_state(WarmState.PROVISIONING) if state.vital(m).awake.verdict == "Healthy")
    return min((left for m in healthy if (left := _patience_left(state, m)) > 0), default=None)


def asleep(m: WarmVM) -> bool:
    """By our own doing."""
    return m.run_strategy == "Halted" or (m.vmi is not None and m.vmi.running and bool(m.vmi.paused))


def _patience_left(state: WarmPoolSnapshot, m: WarmVM) -> float:
    """How long it has to stay healthy yet. One that is put to sleep has time to finish what guests do at boot."""
    spec = state.pool.spec
    warm_up = spec.standby.warmup_seconds if m.standby != "Running" else 0
    return max(spec.readiness.min_ready_seconds, warm_up) - state.vital(m).well_seconds


_IN_PLAY = (WarmState.READY, WarmState.STANDING_BY, WarmState.PROVISIONING)


def change_standby(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """One that is there is woken up sooner than a new one boots, so those that are Ready are hot first. Another mode
    moves as many at a time as a rollout may take away, for none of them can be claimed while it changes."""
    playing = [m for m in state.in_state(*_IN_PLAY) if not state.outdated(m)]
    hot = {m.uid for m in sorted(playing, key=_heat)[: _hot(state)]}
    spare = max(len(state.available) - state.pool.spec.replicas + disruption_budget(state).down, not _changing(playing))
    for m in playing:
        wanted: StandbyMode = "Running" if m.uid in hot else state.pool.spec.standby.mode
        if wanted == m.standby:
            continue
        if m.state is WarmState.PROVISIONING:  # it is told where to go when it is ready
            yield SetState(m, m.state, f"it is to wait {wanted.lower()}", wanted)
        elif wanted == "Running" != state.pool.spec.standby.mode:
            yield SetState(m, WarmState.STANDING_BY, "it is to be hot", wanted)
        elif m.state is WarmState.STANDING_BY or spare > 0:
            spare -= m.state is WarmState.READY
            yield SetState(m, WarmState.STANDING_BY, f"it is to wait {wanted.lower()}", wanted)


def standby_of_new_vm(state: WarmPoolSnapshot, made: int) -> StandbyMode:
    """How the next one will wait, with so many made before it. Those that are there are woken up before it boots."""
    there = sum(not state.outdated(m) for m in state.in_state(*_IN_PLAY)) + made
    return "Running" if there < _hot(state) else state.pool.spec.standby.mode


def _hot(state: WarmPoolSnapshot) -> int:
    standby = state.pool.spec.standby
    return state.target if standby.mode == "Running" else standby.hot_replicas


def _changing(playing: list[WarmVM]) -> bool:
    return any(m.state is WarmState.STANDING_BY for m in playing)


def _heat(m: WarmVM) -> tuple[bool, int, str, str]:
    return m.state is WarmState.PROVISIONING, STANDBY_MODES.index(m.standby), m.created_at, m.uid
