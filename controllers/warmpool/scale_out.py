"""Too few machines: how many are made now, and what they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, Create
from controllers.warmpool.naming import drawn, fresh
from controllers.warmpool.rollout import leeway, retiring
from controllers.warmpool.snapshot import State
from controllers.warmpool.standby import of_new
from kinds.warm import Warm


def too_few_machines(state: State, now: datetime) -> Iterator[Action]:
    pool = state.pool
    count = min(missing(state, now), allowed(state, now))
    depth = len(state.depth)
    taken = {m.name for m in state.machines}
    for made, name in enumerate(fresh(pool.name, state.seed, count, taken)):
        placement = drawn(pool.uid, name, pool.spec.places) or next(iter(pool.placements))
        reason = f"{depth} of {state.target} were there or on their way"
        yield Create(name, placement, of_new(state, made), reason)


def missing(state: State, now: datetime) -> int:
    """How many more the target and the strategy want."""
    old = [m for m in state.depth if retiring(state, m, now)]
    keepers = len(state.depth) - len(old)
    above = leeway(state).surge if old else 0
    return max(0, min(state.target - keepers, state.target + above - len(state.depth)))


def allowed(state: State, now: datetime) -> int:
    """How many may be made now, whatever is missing."""
    refill = state.pool.spec.refill
    if not state.failures.due(now):
        return 0
    under_way = len(state.in_state(Warm.PROVISIONING))
    most = min(refill.max_concurrent - under_way, state.room)
    if not math.isinf(state.tokens):
        most = min(most, int(state.tokens))
    # After many failures one is made to see whether it goes again.
    return max(0, min(most, 1) if state.breaker_open else most)


def seconds_until_allowed(state: State, now: datetime) -> float | None:
    if not missing(state, now):
        return None
    if (wait := state.failures.seconds_until_due(now)) is not None:
        return wait
    rate = state.pool.spec.refill.rate_per_second
    return max(0.02, (1 - state.tokens) / rate) if rate and state.tokens < 1 else None
