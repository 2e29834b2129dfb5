"""What a pool does next: an ordinary function of what was observed and of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from controllers.pool.actions import Action, Create, Delete, ReleaseDisks, SaveRevision
from controllers.pool.machine import Machine
from controllers.pool.naming import free, name_of
from controllers.pool.select import ordered
from controllers.pool.state import State
from kinds.strategy import Nothing, ScaleInOpportunistic, ScaleInProactive, SelectionPolicy

PATIENCE = timedelta(minutes=5)
"""How long the name of a VM that is being deleted is waited for. After that, another ordinal takes its place."""


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    blocked: str = ""
    """why the pool keeps more VMs than it should have"""
    again_seconds: float | None = None
    """when time alone will change the plan"""


def plan(state: State, now: datetime) -> Plan:
    """The actions in the order in which they are to be done.

    Disks are released whatever else holds: a VM that waits for it can't go. For the rest, a pool that is paused or
    being deleted does nothing, and neither does one whose store doesn't show yet what it wrote last.
    """
    actions = list(disks_wait_to_be_released(state, now))
    if not (state.pool.deleting or state.pool.spec.paused) and state.settled:
        for step in STEPS:
            if found := tuple(step(state, now)):
                actions += found
                break
    return Plan(tuple(actions), blocked(state), _again_seconds(state, now))


def disks_wait_to_be_released(state: State, now: datetime) -> Iterator[Action]:
    for m in state.leaving:
        if m.keeping:
            yield ReleaseDisks(m.name, m.uid, m.disks, state.pool.uid, "its disks outlive it")


def too_few_machines(state: State, now: datetime) -> Iterator[Action]:
    """Gaps first, then new ordinals. The name of a VM that is on its way out is waited for: it comes back with the
    disks that were kept for it, and a pool that is scaled in and out again has the same names as before."""
    wanted = state.pool.spec.replicas
    missing = wanted - len(state.alive) - len(_awaited(state, now))
    if missing <= 0:
        return
    if not state.saved:
        yield SaveRevision(state.revision.name, state.revision.number, "the template is new")
    reason = f"{len(state.alive)} of {wanted} VMs exist"
    for ordinal in free(state.taken, min(missing, state.burst)):
        yield Create(ordinal, name_of(state.pool.name, ordinal), state.revision.name, reason)


def too_many_machines(state: State, now: datetime) -> Iterator[Action]:
    wanted = state.pool.spec.replicas
    excess = len(state.alive) - wanted
    if excess <= 0:
        return
    keep = _keeps_disks(state)
    for m in _candidates(state)[: min(excess, state.burst)]:
        reason = f"{len(state.alive)} VMs exist, {wanted} are wanted"
        yield Delete(m.name, m.uid, m.resource_version, reason, keep)


STEPS: tuple[Callable[[State, datetime], Iterator[Action]], ...] = (too_few_machines, too_many_machines)


def blocked(state: State) -> str:
    """Why scale-in can't go on, or nothing."""
    excess = len(state.alive) - state.pool.spec.replicas
    possible = len(_candidates(state)) if excess > 0 else 0
    if excess <= possible:
        return ""
    match state.pool.spec.scale_in_strategy.chosen:
        case ScaleInProactive():
            why = "the others are protected by poolhouse.dev/scale-in: Protect"
        case ScaleInOpportunistic():
            why = "the strategy is opportunistic, and the others are not halted"
        case _:
            why = "the strategy is unmanaged: delete VMs yourself"
    return f"{excess} VMs are too many, {possible} can go: {why}"


def _awaited(state: State, now: datetime) -> list[Machine]:
    return [m for m in state.leaving if now - _time(m.deleted_at, now) < PATIENCE]


def _again_seconds(state: State, now: datetime) -> float | None:
    ends = [_time(m.deleted_at, now) + PATIENCE - now for m in _awaited(state, now)]
    return min(ends).total_seconds() if ends else None


def _time(text: str, now: datetime) -> datetime:
    return datetime.fromisoformat(text) if text else now


def _candidates(state: State) -> list[Machine]:
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
    return sorted(ordered(willing, policy), key=lambda m: m.scale_in != "First")


def _keeps_disks(state: State) -> bool:
    strategy = state.pool.spec.scale_in_strategy.chosen
    return not isinstance(strategy, Nothing) and strategy.state_preservation == "Offline"
