"""How machines wait: `hotReplicas` of them run, all others wait as `standby.mode` says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.warm.machine import STANDBYS, Machine, Standby
from controllers.warm.pool.actions import Action, Move
from controllers.warm.pool.state import State
from kinds.warm import Warm

_IN_PLAY = (Warm.READY, Warm.STANDING_BY, Warm.PROVISIONING)


def machines_wait_otherwise(state: State, now: datetime) -> Iterator[Action]:
    """One that is there is woken up sooner than a new one boots, so those that are Ready are hot first."""
    playing = [m for m in state.in_state(*_IN_PLAY) if not state.outdated(m)]
    hot = {m.uid for m in sorted(playing, key=_heat)[: _hot(state)]}
    for m in playing:
        wanted: Standby = "Running" if m.uid in hot else state.pool.spec.standby.mode
        if wanted == m.standby:
            continue
        # Who isn't ready yet is told where to go when it is.
        after = Warm.PROVISIONING if m.state is Warm.PROVISIONING else Warm.STANDING_BY
        yield Move(m, after, f"it is to wait {wanted.lower()}", wanted)


def of_new(state: State, made: int) -> Standby:
    """How the next one will wait, with so many made before it. Those that are there are woken up before it boots."""
    there = sum(not state.outdated(m) for m in state.in_state(*_IN_PLAY)) + made
    return "Running" if there < _hot(state) else state.pool.spec.standby.mode


def _hot(state: State) -> int:
    standby = state.pool.spec.standby
    return state.target if standby.mode == "Running" else standby.hot_replicas


def _heat(m: Machine) -> tuple[bool, int, str, str]:
    return m.state is Warm.PROVISIONING, STANDBYS.index(m.standby), m.born, m.uid
