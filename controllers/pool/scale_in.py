"""Too many VMs: which ones leave, and what holds the others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.actions import Action, Delete
from controllers.pool.machine import VM
from controllers.pool.rollout import DisruptionBudget
from controllers.pool.selection import sort_victims
from controllers.pool.snapshot import PoolSnapshot
from kinds import meta
from kinds.pool_strategies import EmptyObject, ScaleInOpportunistic, ScaleInProactive, SelectionPolicy

WISHES = ("", "First")
"""Whatever else is written there protects the VM: `Protect`, and what was perhaps meant to be."""
NAMES_SAID = 5


def with_invalid_scale_in(state: PoolSnapshot) -> list[VM]:
    """VMs with a wish that is none."""
    return [m for m in state.alive if m.scale_in not in (*WISHES, "Protect")]


def scale_in(state: PoolSnapshot, now: datetime) -> Iterator[Action]:
    keep = retains_disks(state)
    reason = f"{len(state.alive)} VMs exist, {state.pool.spec.replicas} are wanted"
    for m in select_victims(state)[: state.burst]:
        yield Delete(m.name, m.uid, m.resource_version, reason, keep)


def select_victims(state: PoolSnapshot) -> list[VM]:
    """Who leaves, the first to go first. One that is available is passed over where too few others would be left: it
    is those that are not available that go then."""
    excess = len(state.alive) - state.pool.spec.replicas
    room = DisruptionBudget.of(state)
    found: list[VM] = []
    for m in candidates(state) if excess > 0 else ():
        if len(found) < excess and not room.too_few_without(m):
            found.append(m)
            room = room.without(m)
    return found


def candidates(state: PoolSnapshot) -> list[VM]:
    """Who may leave, the first to go first."""
    strategy = state.pool.spec.scale_in_strategy.chosen
    if isinstance(strategy, EmptyObject):
        return []
    willing = [m for m in state.alive if m.scale_in in WISHES]
    policy = SelectionPolicy()
    if isinstance(strategy, ScaleInOpportunistic):
        willing = [m for m in willing if m.halted]
    else:
        policy = strategy.selection_policy
    # One whose deletion was begun, and not finished because we were killed, comes before any that was left alone.
    return sorted(sort_victims(willing, policy), key=lambda m: (not m.keeping, m.scale_in != "First"))


def retains_disks(state: PoolSnapshot) -> bool:
    strategy = state.pool.spec.scale_in_strategy.chosen
    return not isinstance(strategy, EmptyObject) and strategy.state_preservation == "Offline"


def blocked_reason(state: PoolSnapshot) -> str:
    """Why scale-in can't go on, or nothing."""
    excess = len(state.alive) - state.pool.spec.replicas
    possible = len(select_victims(state))
    if excess <= possible:
        return ""
    if len(candidates(state)) >= excess:
        return (
            f"{excess} VMs are too many, {possible} can go now: {DisruptionBudget.of(state).floor} must stay available"
        )
    match state.pool.spec.scale_in_strategy.chosen:
        case ScaleInProactive():
            why = f"{_protected(state)} by {meta.SCALE_IN}"
        case ScaleInOpportunistic():
            why = "the strategy is opportunistic, and the others are not halted or protected"
        case _:
            why = "the strategy is unmanaged: delete VMs yourself"
    return f"{excess} VMs are too many, {possible} can go: {why}"


def _protected(state: PoolSnapshot) -> str:
    names = sorted(m.name for m in state.alive if m.scale_in not in WISHES)
    more = f" and {len(names) - NAMES_SAID} more" if len(names) > NAMES_SAID else ""
    return f"{', '.join(names[:NAMES_SAID])}{more} {'is' if len(names) == 1 else 'are'} protected"
