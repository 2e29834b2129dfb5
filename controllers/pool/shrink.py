"""Too many VMs: which ones leave, and what holds the others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.actions import Action, Delete
from controllers.pool.machine import Machine
from controllers.pool.select import ordered
from controllers.pool.state import State
from kinds.strategy import Nothing, ScaleInOpportunistic, ScaleInProactive, SelectionPolicy


def too_many_machines(state: State, now: datetime) -> Iterator[Action]:
    wanted = state.pool.spec.replicas
    excess = len(state.alive) - wanted
    if excess <= 0:
        return
    keep = keeps_disks(state)
    reason = f"{len(state.alive)} VMs exist, {wanted} are wanted"
    for m in candidates(state)[: min(excess, state.burst)]:
        yield Delete(m.name, m.uid, m.resource_version, reason, keep)


def candidates(state: State) -> list[Machine]:
    """Who may leave, the first to go first."""
    strategy = state.pool.spec.scale_in_strategy.chosen
    if isinstance(strategy, Nothing):
        return []
    willing = [m for m in state.alive if m.scale_in != "Protect"]
    policy = SelectionPolicy()
    if isinstance(strategy, ScaleInOpportunistic):
        willing = [m for m in willing if m.halted]
    else:
        policy = strategy.selection_policy
    # One whose deletion was begun, and not finished because we were killed, comes before any that was left alone.
    return sorted(ordered(willing, policy), key=lambda m: (not m.keeping, m.scale_in != "First"))


def keeps_disks(state: State) -> bool:
    strategy = state.pool.spec.scale_in_strategy.chosen
    return not isinstance(strategy, Nothing) and strategy.state_preservation == "Offline"


def blocked(state: State) -> str:
    """Why scale-in can't go on, or nothing."""
    excess = len(state.alive) - state.pool.spec.replicas
    possible = len(candidates(state)) if excess > 0 else 0
    if excess <= possible:
        return ""
    match state.pool.spec.scale_in_strategy.chosen:
        case ScaleInProactive():
            why = "the others are protected by poolhouse.dev/scale-in: Protect"
        case ScaleInOpportunistic():
            why = "the strategy is opportunistic, and the others are not halted or protected"
        case _:
            why = "the strategy is unmanaged: delete VMs yourself"
    return f"{excess} VMs are too many, {possible} can go: {why}"
