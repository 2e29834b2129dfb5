"""What becomes of machines when their pool goes, and of those that nobody should have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, DeleteVM, OrphanVM, SetFinalizer
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.warm_vm import NO_OWNER, WarmVM
from kinds import meta
from kinds.warm_states import WarmState

FINALIZER = f"{meta.DOMAIN}/orphan-machines"
"""On pools whose machines are to outlive them: the garbage collector would not ask."""


def update_finalizer(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    pool = state.pool
    wanted = pool.spec.deletion_policy == "Orphan" and not pool.deleting
    if wanted and FINALIZER not in pool.finalizers:
        yield SetFinalizer(True, "deletionPolicy is Orphan")
    elif pool.spec.deletion_policy != "Orphan" and FINALIZER in pool.finalizers:
        yield SetFinalizer(False, "deletionPolicy is Delete")


def orphan_members(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """With Delete nothing is to be done: the machines are the pool's, and go as the garbage of any other owner."""
    if not state.pool.deleting or FINALIZER not in state.pool.finalizers:
        return
    for m in state.members:
        yield OrphanVM(m, "PoolDeleted", "its pool is being deleted, and deletionPolicy is Orphan")
    if not state.members:
        yield SetFinalizer(False, "its machines are orphaned")


def delete_terminating(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    for m in state.left_behind:
        yield DeleteVM(m, "Marked", "it was marked to be terminated")


def delete_contradictory(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Ours, with the claim or the state of a machine that is a claim's: no write of ours leaves that behind. One that
    says it was given away, and to whom, is its claim's to judge: labels are written by us alone, owner references by
    anybody."""
    for m in state.impossible:
        given = bool(m.claim_uid) and m.state in (WarmState.ALLOCATING, WarmState.IN_USE)
        if m.owned_by(state.pool.uid) and not given:
            yield DeleteVM(
                m, "Contradiction", f"its labels contradict each other (state {m.state}, claim {m.claim_uid})"
            )


def orphan_disowned(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Somebody took the pool's owner reference away. It is no longer given to claims, and says so."""
    for m in state.impossible:
        if m.unclaimed and m.owner == NO_OWNER:
            yield OrphanVM(m, "Disowned", "its owner reference to the pool was removed")


def orphan_leftovers(machines: Iterable[WarmVM], pool_uid: str) -> Iterator[OrphanVM]:
    """Of a pool that is gone: those that it still owns go as garbage, the others belong to nobody."""
    for m in machines:
        if m.unclaimed and not m.deleting and not m.orphaned and not m.owned_by(pool_uid):
            yield OrphanVM(m, "PoolGone", "its pool is gone")
