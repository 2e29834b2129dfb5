"""A warm pool's state, and what of an action matters in a row."""

from __future__ import annotations

from typing import Any

from controllers.warm.health import resting, vitals
from controllers.warm.machine import Machine
from controllers.warm.machines import HEALTHY, Health
from controllers.warm.pool.actions import Action, Count, Create, Hold, Move, Orphan, Rest, Terminate
from controllers.warm.pool.plan import plan
from controllers.warm.pool.state import State, Vital
from controllers.warm.pools import Pool
from tests.controllers.warm.builders import NOW, a_pool

FAILED = Health("Failed", "NoAnswer", "no answer")
UNABLE = Health("Unable", "NodeNotReady", "node node-1 does not answer")


def vital(m: Machine, pool: Pool, **facts: Any) -> Vital:
    """As it follows from the machine, but for what is given."""
    awake = vitals(m, pool.spec.readiness)
    found = Vital(awake, awake if m.standby == "Running" else resting(m), well_seconds=1000.0)
    return Vital(**{**found.__dict__, **facts})


def state(of: Pool | int, *machines: Machine, health: dict[str, Vital] | None = None, **facts: Any) -> State:
    pool = a_pool(of) if isinstance(of, int) else of
    found = {m.uid: vital(m, pool) for m in machines} | (health or {})
    return State(pool=pool, machines=machines, vitals=found, seed="s", default=facts.pop("default", pool), **facts)


def failing(periods: int = 1, **facts: Any) -> Vital:
    return Vital(**{"awake": FAILED, "waiting": FAILED, "failing": periods, "period_over": True, **facts})


def well(seconds: float = 1000.0) -> Vital:
    return Vital(HEALTHY, HEALTHY, well_seconds=seconds)


def told(action: Action) -> tuple[Any, ...]:
    match action:
        case Create():
            return "create", action.standby
        case Terminate():
            return "terminate", action.machine.uid, action.cause
        case Orphan():
            return "orphan", action.machine.uid, action.cause
        case Move():
            return ("move", action.machine.uid, action.state.value, *([action.standby] if action.standby else []))
        case Rest():
            return "rest", action.machine.uid, action.mode
        case Count():
            return "count", action.machine.uid, action.failures
        case Hold():
            return "hold", action.wanted


def doings(observed: State) -> list[tuple[Any, ...]]:
    return [told(action) for action in plan(observed, NOW).actions]
