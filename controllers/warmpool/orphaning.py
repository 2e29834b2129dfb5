"""Releases VMs from a pool that is deleted, and deletes VMs with contradictory labels or without a record."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, DeleteVM, OrphanVM, SetFinalizer
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.warm_vm import NO_OWNER, WarmVM, seconds_since
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState

FINALIZER = f"{meta.DOMAIN}/orphan-machines"
"""The finalizer of pools with `deletionPolicy: Orphan`, so that the garbage collector does not delete the VMs first."""


def update_finalizer(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    pool = snapshot.pool
    wanted = pool.spec.deletion_policy == "Orphan"
    if wanted and not pool.deleting and FINALIZER not in pool.finalizers:
        yield SetFinalizer(True, "deletionPolicy is Orphan")
    elif not wanted and FINALIZER in pool.finalizers:
        yield SetFinalizer(False, "deletionPolicy is Delete")


def orphan_members(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Orphans the VMs of a pool that is being deleted and has the finalizer."""
    if not snapshot.pool.deleting or FINALIZER not in snapshot.pool.finalizers:
        return
    for vm in snapshot.members:
        yield OrphanVM(vm, "PoolDeleted", "the pool is being deleted and its deletionPolicy is Orphan")
    if not snapshot.members:
        yield SetFinalizer(False, "all VMs are orphaned")


def delete_marked(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    for vm in snapshot.marked:
        yield DeleteVM(vm, "Marked", "the VM was marked for termination")


def delete_contradictory(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Deletes VMs that the pool owns and whose labels mention a claim: the controllers never write this combination.
    Allocated VMs are not deleted: any user may forge an owner reference, but only the controllers write the labels."""
    for vm in snapshot.contradictory:
        allocated = bool(vm.claim_uid) and vm.state in (WarmState.ALLOCATING, WarmState.IN_USE)
        if vm.owned_by(snapshot.pool.uid) and not allocated:
            reason = f"the labels of the VM contradict each other (state {vm.state}, claim {vm.claim_uid})"
            yield DeleteVM(vm, "Contradiction", reason)


UNRECORDED_SECONDS = 60.0
"""Age from which an unrecorded VM is deleted. A new leader may see the status later than the VM."""


def delete_unrecorded(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Deletes VMs that look like the pool's and that no controller has created, as far as the status says. The pool
    replaces a VM whose creator ended before it wrote the status."""
    if snapshot.pool.spec.paused:
        return
    for vm in snapshot.unrecorded:
        if seconds_since(vm.created_at, now) >= UNRECORDED_SECONDS:
            yield DeleteVM(vm, "NotRecorded", "the status of the pool does not say that a controller created the VM")


def seconds_until_deleted(snapshot: WarmPoolSnapshot, now: datetime) -> float | None:
    left = (UNRECORDED_SECONDS - seconds_since(vm.created_at, now) for vm in snapshot.unrecorded)
    return min((each for each in left if each > 0), default=None)


def orphan_disowned(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Orphans VMs without an owner reference to the pool, so that no claim gets them."""
    for vm in snapshot.contradictory:
        if vm.unclaimed and vm.owner == NO_OWNER:
            yield OrphanVM(vm, "Disowned", "the owner reference to the pool was removed")


def orphan_leftovers(vms: Iterable[WarmVM], pool_uid: str) -> Iterator[OrphanVM]:
    """Orphans VMs of a deleted pool. VMs with an owner reference to the pool are left to the garbage collector."""
    for vm in vms:
        if vm.unclaimed and not vm.deleting and not vm.orphaned and not vm.owned_by(pool_uid):
            yield OrphanVM(vm, "PoolGone", "the pool no longer exists")
