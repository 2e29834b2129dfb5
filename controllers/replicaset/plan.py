"""The plan of a replica set: a pure function of the snapshot and of the time.

Membership is settled first. As in the design document, VMIs that have ended or are being deleted do not count, and
their replacements are created at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from controllers.replicaset.actions import Action, Adopt, Create, Delete, Release
from controllers.replicaset.naming import free_names
from controllers.replicaset.replacement_backoff import BackOff, back_off, describe_end, next_attempt
from controllers.replicaset.snapshot import ReplicaSetSnapshot
from controllers.shared.vmi import VMI


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    """in the order in which they are to be done"""
    waits: tuple[BackOff, ...] = ()
    """ended VMIs that are not replaced yet"""
    again_seconds: float | None = None
    """when time alone changes the plan"""


def plan(snapshot: ReplicaSetSnapshot, now: datetime) -> Plan:
    """A set that is being deleted, or whose stores do not show its previous writes, does nothing. A paused set settles
    membership only."""
    if snapshot.replica_set.deleting or not snapshot.synced:
        return Plan()
    membership = (*release(snapshot), *adopt(snapshot))
    if snapshot.replica_set.spec.paused:
        return Plan(membership)
    waits = tuple(_waits(snapshot, now))
    numbers = (*delete_ended(snapshot, waits), *scale_out(snapshot, waits, now), *scale_in(snapshot))
    again = min(((each.until - now).total_seconds() for each in waits), default=None)
    return Plan((*membership, *numbers), waits, again)


def release(snapshot: ReplicaSetSnapshot) -> Iterator[Action]:
    for vmi in snapshot.unmatched:
        if not vmi.deleting:
            yield Release(vmi.name, vmi.uid, vmi.resource_version, "its labels do not match the selector any more")


def adopt(snapshot: ReplicaSetSnapshot) -> Iterator[Action]:
    for vmi in snapshot.orphans:
        yield Adopt(vmi.name, vmi.uid, vmi.resource_version, "the selector matches it and it has no controller")


def delete_ended(snapshot: ReplicaSetSnapshot, waits: tuple[BackOff, ...]) -> Iterator[Action]:
    """VMIs whose replacement waits stay, for users to inspect."""
    stay = {each.vmi.uid for each in waits}
    for vmi in [vmi for vmi in _ended(snapshot) if vmi.uid not in stay][: snapshot.burst]:
        yield Delete(vmi.name, vmi.uid, vmi.resource_version, f"it has ended ({describe_end(vmi)})")


def scale_out(snapshot: ReplicaSetSnapshot, waits: tuple[BackOff, ...], now: datetime) -> Iterator[Action]:
    spec, known = snapshot.replica_set.spec, len(_known(snapshot))
    missing = spec.replicas - known - len(waits)
    if missing <= 0:
        return
    # The highest attempt first: a VMI that replaces two continues the history of the one that failed more often.
    attempts = sorted((next_attempt(vmi) for vmi in _ended(snapshot) if back_off(vmi, now) is None), reverse=True)
    found = snapshot.replica_set
    names = free_names(found.uid, found.base_name, snapshot.taken_names, min(missing, snapshot.burst))
    for number, name in enumerate(names):
        attempt = attempts[number] if number < len(attempts) else 0
        yield Create(name, f"{known} of {spec.replicas} exist", attempt)


def scale_in(snapshot: ReplicaSetSnapshot) -> Iterator[Action]:
    """Deletes VMIs that are not ready first, then migrating ones, then the others; newer ones before older ones.

    A VMI in the phase Unknown was replaced in advance. It is deleted once enough others are ready."""
    wanted, known = snapshot.replica_set.spec.replicas, _known(snapshot)
    excess = max(0, len(known) - wanted)
    victims = [(vmi, f"{len(known)} exist, {wanted} are wanted") for vmi in sorted(known, key=_order)[:excess]]
    if sum(vmi.ready for vmi in known) >= wanted:
        unknown = (vmi for vmi in snapshot.active if vmi.unknown)
        victims += [(vmi, "its phase is Unknown, and enough others are ready") for vmi in unknown]
    # A VMI that is only being adopted is deleted by a later plan.
    for vmi, reason in [(vmi, reason) for vmi, reason in victims if vmi.owner_uid][: snapshot.burst]:
        yield Delete(vmi.name, vmi.uid, vmi.resource_version, reason)


def _order(vmi: VMI) -> tuple[int, tuple[int, ...], str]:
    rank = 0 if not vmi.ready else 1 if vmi.migrating else 2
    return rank, tuple(-ord(letter) for letter in vmi.created_at), vmi.name


def _known(snapshot: ReplicaSetSnapshot) -> list[VMI]:
    """Active VMIs whose node answers."""
    return [vmi for vmi in snapshot.active if not vmi.unknown]


def _ended(snapshot: ReplicaSetSnapshot) -> list[VMI]:
    return [vmi for vmi in snapshot.present if vmi.final]


def _waits(snapshot: ReplicaSetSnapshot, now: datetime) -> list[BackOff]:
    """The first to be due, and no more than VMIs are missing."""
    found = [each for vmi in _ended(snapshot) if (each := back_off(vmi, now))]
    missing = max(0, snapshot.replica_set.spec.replicas - len(_known(snapshot)))
    return sorted(found, key=lambda each: (each.until, each.vmi.name))[:missing]
