"""VMs that have an old template: which are brought up to date, and which must wait.

Two limits hold at any time. No VM that is available is taken while fewer than `replicas - maxUnavailable` others are.
And no more than `maxUnavailable` VMs may be on their way (missing, or of the new template and not available yet): a
template that doesn't start stops there, even where the old VMs weren't available either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from controllers.pool.actions import Action, Restart, SaveRevision, Update
from controllers.pool.machine import VM
from controllers.pool.naming import has_revision, name_of
from controllers.pool.progress import deadline_exceeded
from controllers.pool.selection import sort_victims
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.template import disk_names
from kinds.pool_strategies import SelectionPolicy, UpdateProactive

# KubeVirt starts VMs of these again by itself when their run is deleted.
RESTARTED = frozenset({"Always"})
ASKED = frozenset({"Manual", "RerunOnFailure"})


@dataclass(frozen=True)
class Waiting:
    """A VM that would be acted on, and why it isn't yet."""

    name: str
    reason: str


def roll_out(state: PoolSnapshot, now: datetime) -> Iterator[Action]:
    found = [each for each in _considered(state, now) if not isinstance(each, Waiting)][: state.burst]
    if any(isinstance(each, Update) for each in found) and not state.saved:
        yield SaveRevision(state.revision.name, state.revision.number, "the template has changed")
    yield from found


def waiting(state: PoolSnapshot, now: datetime) -> tuple[Waiting, ...]:
    return tuple(each for each in _considered(state, now) if isinstance(each, Waiting))


def _considered(state: PoolSnapshot, now: datetime) -> Iterator[Update | Restart | Waiting]:
    """Every VM that isn't as the template says, in the order in which they are taken."""
    behind = [m for m in state.alive if state.outdated(m) or state.stale(m)]
    if not behind:
        return
    strategy = state.pool.spec.update_strategy
    if strategy.unmanaged is not None:
        yield from (Waiting(m.name, "the update strategy is unmanaged") for m in behind)
        return
    proactive = strategy.chosen if isinstance(strategy.chosen, UpdateProactive) else None
    room = DisruptionBudget.of(state)
    reason_to_stop = deadline_exceeded(state, now)
    # Those whose update was begun come first: they are counted as under way already.
    rest = sort_victims([m for m in behind if state.outdated(m)], _policy(proactive))
    # One that is refused must not take the room of all others for ever.
    rest.sort(key=lambda m: has_revision(m.name, state.revision.label) in state.unwanted)
    begun = [m for m in behind if _is_begun(state, m)]
    refused = [m for m in behind if not state.outdated(m) and not _is_begun(state, m)]
    for m in begun + rest + refused:
        if m.ordinal is None or m.stem != state.pool.name:
            yield Waiting(
                m.name, f"its name is none that {state.pool.name} gives, so the template can't be applied to it"
            )
        elif refusal := _not_its_disk(state, m):
            yield Waiting(m.name, refusal)
        elif m.halted and state.outdated(m):
            yield _update(state, m, "it is halted")
        elif proactive is None:
            yield Waiting(m.name, "the update strategy is opportunistic, and it is not halted")
        elif not state.stale(m):
            yield _update(state, m, "the change needs no restart" if m.guest else "it is not running yet")
        elif not _restarts(m):
            yield _at_next_start(state, m)
        elif reason_to_stop:
            yield Waiting(m.name, reason_to_stop)
        elif refusal := room.refusal(m, begun=_is_begun(state, m)):
            yield Waiting(m.name, refusal)
        else:
            room = room.without(m, begun=_is_begun(state, m))
            yield _update(state, m, "the template has changed") if state.outdated(m) else _restart(m)


@dataclass(frozen=True)
class DisruptionBudget:
    """What may still be taken away from the pool."""

    available: int
    floor: int
    under_way: int
    most: int

    @classmethod
    def of(cls, state: PoolSnapshot) -> DisruptionBudget:
        under_way = sum(
            _is_begun(state, m) and (not m.available or (state.stale(m) and _restarts(m)))
            for m in state.alive
            if m.meant_to_run
        )
        return cls(
            available=sum(m.available for m in state.alive),
            floor=max(0, state.pool.spec.replicas - state.pool.max_unavailable),
            under_way=state.missing + under_way,
            most=state.pool.max_unavailable,
        )

    def refusal(self, m: VM, begun: bool = False) -> str:
        """Why this VM may not be stopped now, or nothing. One whose update was `begun` is under way already."""
        if not begun and self.under_way >= self.most:
            return f"{self.under_way} VMs are on their way already, {self.most} may be"
        if self.too_few_without(m):
            return f"{self.available} VMs are available, {self.floor} must stay so"
        return ""

    def too_few_without(self, m: VM) -> bool:
        return m.available and self.available - 1 < self.floor

    def without(self, m: VM, begun: bool = False) -> DisruptionBudget:
        return replace(self, available=self.available - m.available, under_way=self.under_way + (not begun))


def _not_its_disk(state: PoolSnapshot, m: VM) -> str:
    """Why the template would give this VM a disk that another VM writes to, or nothing."""
    wanted = {name_of(disk, m.ordinal) for disk in disk_names(state.pool.spec.template)} if m.ordinal else set()
    new = wanted.difference(m.disks)
    if others := sorted(new & state.strangers.keys()):
        return f"the template gives it disk {others[0]}, {state.strangers[others[0]]}: give the disk another name"
    return state.shared.message if new and state.shared else ""


def _is_begun(state: PoolSnapshot, m: VM) -> bool:
    """It has the template, and its restart is no more than a matter of time. One that is available and whose restart is
    refused goes on as it is."""
    refused = m.available and m.guest is not None and m.guest.uid in state.unwanted
    return not state.outdated(m) and not refused


def _restarts(m: VM) -> bool:
    """Its run may be ended for the template's sake. A run that nobody would begin again goes on as long as it likes."""
    return m.strategy in RESTARTED | ASKED


def _restart(m: VM) -> Restart:
    assert m.guest is not None
    return Restart(m.name, m.guest.uid, m.strategy in ASKED, "the template has changed")


def _at_next_start(state: PoolSnapshot, m: VM) -> Update | Waiting:
    reason = f"its run strategy is {m.strategy}: it gets the new template when it is started again"
    return _update(state, m, reason) if state.outdated(m) else Waiting(m.name, reason)


def _update(state: PoolSnapshot, m: VM, reason: str) -> Update:
    assert m.ordinal is not None
    return Update(m.name, m.uid, m.ordinal, m.revision, state.revision.label, reason)


def _policy(strategy: UpdateProactive | None) -> SelectionPolicy:
    return strategy.selection_policy if strategy else SelectionPolicy()
