"""Releases VMs from a pool that is deleted, and deletes VMs whose labels are contradictory."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, DeleteVM, OrphanVM, SetFinalizer
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.warm_vm import NO_OWNER, WarmVM
from kinds import meta
from kinds.warm_states import WarmState

FINALIZER = f"{meta.DOMAIN}/orphan-machines"
"""On pools with `deletionPolicy: Orphan`. Without it the garbage collector would delete the VMs."""


def update_finalizer(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    pool = snapshot.pool
    wanted = pool.spec.deletion_policy == "Orphan"
    if wanted and not pool.deleting and FINALIZER not in pool.finalizers:
        yield SetFinalizer(True, "deletionPolicy is Orphan")
    elif not wanted and FINALIZER in pool.finalizers:
        yield SetFinalizer(False, "deletionPolicy is Delete")


def orphan_members(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """For a pool that is being deleted. With `deletionPolicy: Delete` the garbage collector deletes the VMs."""
    if not snapshot.pool.deleting or FINALIZER not in snapshot.pool.finalizers:
        return
    for m in snapshot.members:
        yield OrphanVM(m, "PoolDeleted", "the pool is being deleted and its deletionPolicy is Orphan")
    if not snapshot.members:
        yield SetFinalizer(False, "all VMs are orphaned")


def delete_marked(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    for m in snapshot.marked:
        yield DeleteVM(m, "Marked", "the VM was marked for termination")


def delete_contradictory(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Deletes VMs that the pool owns and whose labels mention a claim, which no write of the controllers leaves
    behind. A VM that is allocated or in use is left to its claim: anybody may write an owner reference, but only the
    controllers write the labels."""
    for m in snapshot.contradictory:
        allocated = bool(m.claim_uid) and m.state in (WarmState.ALLOCATING, WarmState.IN_USE)
        if m.owned_by(snapshot.pool.uid) and not allocated:
            reason = f"the labels of the VM contradict each other (state {m.state}, claim {m.claim_uid})"
            yield DeleteVM(m, "Contradiction", reason)


def orphan_disowned(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Labels VMs whose owner reference to the pool was removed: claims must not get them."""
    for m in snapshot.contradictory:
        if m.unclaimed and m.owner == NO_OWNER:
            yield OrphanVM(m, "Disowned", "the owner reference to the pool was removed")


def orphan_leftovers(vms: Iterable[WarmVM], pool_uid: str) -> Iterator[OrphanVM]:
    """For a pool that no longer exists. The garbage collector deletes the VMs that the pool still owns."""
    for m in vms:
        if m.unclaimed and not m.deleting and not m.orphaned and not m.owned_by(pool_uid):
            yield OrphanVM(m, "PoolGone", "the pool no longer exists")
