"""Too many machines: which leave."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256

from controllers.warmpool.actions import Action, Terminate
from controllers.warmpool.rollout import leeway, retiring
from controllers.warmpool.snapshot import State
from controllers.warmpool.warm_vm import Machine, unfit
from kinds.warm import Warm


def too_many_machines(state: State, now: datetime) -> Iterator[Action]:
    """Who can't be given away goes first, then who would have to go anyway, then the youngest."""
    old = {m.uid for m in state.depth if retiring(state, m, now)}
    excess = len(state.depth) - state.target - (leeway(state).surge if old else 0)
    if excess <= 0:
        return

    def rank(m: Machine) -> tuple[bool, bool, bool, tuple[int, ...], str]:
        age = tuple(-ord(letter) for letter in m.born)
        return m.state is Warm.READY, not unfit(m), m.uid not in old, age, sha256(m.uid.encode()).hexdigest()

    candidates = [m for m in state.depth if m.state is not Warm.UNKNOWN]
    for m in sorted(candidates, key=rank)[:excess]:
        yield Terminate(m, "Excess", f"{len(state.depth)} machines are there, {state.target} are wanted")
