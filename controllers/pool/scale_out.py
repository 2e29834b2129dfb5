"""Scale-out: which VMs a pool creates when it has too few."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from apimachinery.timestamps import parse_time
from controllers.pool.actions import Action, Create, SaveRevision
from controllers.pool.autohealing import was_healed
from controllers.pool.naming import free_ordinals, name_of
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM

DELETION_TIMEOUT = timedelta(minutes=5)
"""How long the pool waits for the name of a VM that is being deleted. Then another ordinal takes its place."""


def scale_out(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Fills gaps first, then adds ordinals.

    The pool waits for the name of a VM that is being deleted. The new VM gets the disks that were retained for this
    name, and a pool that is scaled in and out has the same names as before."""
    wanted = snapshot.pool.spec.replicas
    missing = wanted - len(snapshot.active) - len(_awaited(snapshot, now))
    if missing <= 0 or snapshot.disk_conflict:
        return
    if not snapshot.revision_saved:
        yield SaveRevision(snapshot.revision.name, snapshot.revision.number, "the template is new")
    reason = f"{len(snapshot.active)} of {wanted} VMs exist"
    retained_for = {disk.retained_for for disk in snapshot.retained_disks}
    found = []
    for ordinal in free_ordinals(snapshot.taken_ordinals, min(missing, snapshot.burst)):
        name = name_of(snapshot.pool.name, ordinal)
        deleted = was_healed(snapshot, name) or name in snapshot.recently_deleted
        found.append(Create(name, ordinal, snapshot.revision.name, reason, deleted and name not in retained_for))
    # VMs that may find old disks come last: the first refusal stops all that follow.
    yield from sorted(found, key=lambda create: create.after_deletion)


def seconds_until_deletion_timeout(snapshot: PoolSnapshot, now: datetime) -> float | None:
    if snapshot.pool.spec.replicas <= len(snapshot.active):
        return None
    ends = [_deleted_at(vm, now) + DELETION_TIMEOUT - now for vm in _awaited(snapshot, now)]
    return min(ends).total_seconds() if ends else None


def _deleted_at(vm: VM, now: datetime) -> datetime:
    return parse_time(vm.deleted_at) if vm.deleted_at else now


def _awaited(snapshot: PoolSnapshot, now: datetime) -> list[VM]:
    return [vm for vm in snapshot.deleting if now - _deleted_at(vm, now) < DELETION_TIMEOUT]
