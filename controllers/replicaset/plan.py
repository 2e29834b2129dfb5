"""What a set does next: an ordinary function of what was observed and of the time.

Four steps of one signature. Who is the set's is settled first; the numbers are then those of the document: what has
ended or is on its way out does not count, and its replacement is made at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from controllers.replicaset.actions import Action, Adopt, Create, Delete, Release
from controllers.replicaset.instance import VMI
from controllers.replicaset.naming import free_names
from controllers.replicaset.replacement_backoff import BackOff, back_off, describe_end, next_attempt
from controllers.replicaset.snapshot import ReplicaSetSnapshot

Step = Callable[[ReplicaSetSnapshot, datetime], Iterator[Action]]


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    """in the order in which they are to be done"""
    waits: tuple[BackOff, ...] = ()
    """instances that have ended and are not replaced yet"""
    again_seconds: float | None = None
    """when time alone will change the plan"""


def plan(state: ReplicaSetSnapshot, now: datetime) -> Plan:
    """A set that is being deleted does nothing, and neither does one whose store doesn't show yet what it wrote last. A
    paused one still knows its own: it creates and deletes nothing."""
    if state.replica_set.deleting or not state.settled:
        return Plan()
    belonging = (*release(state, now), *adopt(state, now))
    if state.replica_set.spec.paused:
        return Plan(belonging)
    numbers = tuple(action for step in (delete_ended, scale_out, scale_in) for action in step(state, now))
    waits = tuple(_waits(state, now))
    again = min(((each.until - now).total_seconds() for each in waits), default=None)
    return Plan((*belonging, *numbers), waits, again)


def release(state: ReplicaSetSnapshot, now: datetime) -> Iterator[Action]:
    """Whoever relabels an instance has something else in mind for it."""
    for i in state.strangers:
        if not i.deleting:
            yield Release(i.name, i.uid, i.resource_version, "its labels are not what the selector asks for any more")


def adopt(state: ReplicaSetSnapshot, now: datetime) -> Iterator[Action]:
    for i in state.orphans:
        yield Adopt(i.name, i.uid, i.resource_version, "the selector matches it and it has no controller")


def delete_ended(state: ReplicaSetSnapshot, now: datetime) -> Iterator[Action]:
    """All that have ended go, but for those whose replacement waits: they show why."""
    stay = {each.instance.uid for each in _waits(state, now)}
    leave = [i for i in _ended(state) if i.uid not in stay]
    for i in leave[: state.burst]:
        yield Delete(i.name, i.uid, i.resource_version, f"it has ended ({describe_end(i)})")


def scale_out(state: ReplicaSetSnapshot, now: datetime) -> Iterator[Action]:
    spec = state.replica_set.spec
    missing = spec.replicas - len(_counted(state)) - len(_waits(state, now))
    if missing <= 0:
        return
    reason = f"{len(_counted(state))} of {spec.replicas} exist"
    # The worst first: an instance that takes the place of two has the history of the one that failed more often.
    attempts = sorted((next_attempt(i) for i in _ended(state) if back_off(i, now) is None), reverse=True)
    names = free_names(state.replica_set.uid, state.replica_set.stem, state.taken, min(missing, state.burst))
    for number, name in enumerate(names):
        yield Create(name, reason, attempts[number] if number < len(attempts) else 0)


def scale_in(state: ReplicaSetSnapshot, now: datetime) -> Iterator[Action]:
    """Those that are not ready go first, then those that are being migrated, then the others; the newest before older
    ones. One whose state is unknown has been replaced in advance, and goes when it is not needed for sure."""
    wanted, counted = state.replica_set.spec.replicas, _counted(state)
    excess = max(0, len(counted) - wanted)
    leave = [(i, f"{len(counted)} exist, {wanted} are wanted") for i in sorted(counted, key=_order)[:excess]]
    if sum(i.ready for i in counted) >= wanted:
        leave += [(i, "its state is unknown, and enough others are ready") for i in state.live if i.unknown]
    # One that is only being taken in has its turn when it is.
    for i, reason in [(i, reason) for i, reason in leave if i.owner][: state.burst]:
        yield Delete(i.name, i.uid, i.resource_version, reason)


def _order(i: VMI) -> tuple[int, tuple[int, ...], str]:
    rank = 0 if not i.ready else 1 if i.migrating else 2
    return rank, tuple(-ord(letter) for letter in i.born), i.name


def _counted(state: ReplicaSetSnapshot) -> list[VMI]:
    """Those that will do, as far as is known."""
    return [i for i in state.live if not i.unknown]


def _ended(state: ReplicaSetSnapshot) -> list[VMI]:
    return [i for i in state.present if i.final]


def _waits(state: ReplicaSetSnapshot, now: datetime) -> list[BackOff]:
    """No more than there are places for; those that come first stay."""
    found = [each for i in _ended(state) if (each := back_off(i, now))]
    places = max(0, state.replica_set.spec.replicas - len(_counted(state)))
    return sorted(found, key=lambda each: (each.until, each.instance.name))[:places]
