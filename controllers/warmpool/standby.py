"""How machines wait: `hotReplicas` of them run, all others wait as `standby.mode` says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, Move
from controllers.warmpool.rollout import leeway
from controllers.warmpool.snapshot import State
from controllers.warmpool.warm_vm import STANDBYS, Machine, Standby
from kinds.warm import Warm

_IN_PLAY = (Warm.READY, Warm.STANDING_BY, Warm.PROVISIONING)


def machines_wait_otherwise(state: State, now: datetime) -> Iterator[Action]:
    """One that is there is woken up sooner than a new one boots, so those that are Ready are hot first. Another mode
    moves as many at a time as a rollout may take away, for none of them can be claimed while it changes."""
    playing = [m for m in state.in_state(*_IN_PLAY) if not state.outdated(m)]
    hot = {m.uid for m in sorted(playing, key=_heat)[: _hot(state)]}
    spare = max(len(state.available) - state.pool.spec.replicas + leeway(state).down, not _changing(playing))
    for m in playing:
        wanted: Standby = "Running" if m.uid in hot else state.pool.spec.standby.mode
        if wanted == m.standby:
            continue
        if m.state is Warm.PROVISIONING:  # it is told where to go when it is ready
            yield Move(m, m.state, f"it is to wait {wanted.lower()}", wanted)
        elif wanted == "Running" != state.pool.spec.standby.mode:
            yield Move(m, Warm.STANDING_BY, "it is to be hot", wanted)
        elif m.state is Warm.STANDING_BY or spare > 0:
            spare -= m.state is Warm.READY
            yield Move(m, Warm.STANDING_BY, f"it is to wait {wanted.lower()}", wanted)


def of_new(state: State, made: int) -> Standby:
    """How the next one will wait, with so many made before it. Those that are there are woken up before it boots."""
    there = sum(not state.outdated(m) for m in state.in_state(*_IN_PLAY)) + made
    return "Running" if there < _hot(state) else state.pool.spec.standby.mode


def _hot(state: State) -> int:
    standby = state.pool.spec.standby
    return state.target if standby.mode == "Running" else standby.hot_replicas


def _changing(playing: list[Machine]) -> bool:
    return any(m.state is Warm.STANDING_BY for m in playing)


def _heat(m: Machine) -> tuple[bool, int, str, str]:
    return m.state is Warm.PROVISIONING, STANDBYS.index(m.standby), m.born, m.uid
