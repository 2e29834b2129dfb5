"""The rule that deletes snapshots of VMs and their restores, and reports those that have failed."""

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.actions import PruneSnapshot
from controllers.pool.reasons import PoolReason
from controllers.pool.restores import end_restores, failed_restores
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.snapshots_before_update import (
    MAX_AGE,
    NOT_SERVED,
    RETRY_AFTER,
    held_by_snapshots,
    is_old,
    retry_at,
)
from controllers.pool.vm_snapshots import VMSnapshot
from controllers.shared.conditions import condition, join_names
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.kinds.metav1 import Condition


def prune_snapshots(snapshot: PoolSnapshot, now: datetime) -> Iterator[PruneSnapshot]:
    """Deletes failed snapshots after a pause, so that they are taken again, those whose VM was not updated for a day,
    and those that a newer one replaces."""
    next_of = _of_next_updates(snapshot)
    newest: dict[tuple[str, str], VMSnapshot] = {}
    for each in sorted(snapshot.vm_snapshots, key=lambda each: each.update):
        if each.deleting:
            continue
        if each.failed:
            if now >= retry_at(each):
                yield PruneSnapshot(each.name, each.uid, "it failed, and is taken again if it is needed")
        elif each.ready and each.name in next_of and is_old(each, now):
            yield PruneSnapshot(each.name, each.uid, "it is a day old, and its VM is not updated yet")
        elif each.ready:
            key = each.vm_uid, each.revision
            if key in newest:
                yield PruneSnapshot(newest[key].name, newest[key].uid, f"{each.name} is newer")
            newest[key] = each


def seconds_until_retry(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until the next snapshot is taken again: one that failed, or one whose VM was not updated for a day."""
    next_of = _of_next_updates(snapshot)
    times = (
        (RETRY_AFTER if each.failed else MAX_AGE) - (now - parse_time(each.created_at))
        for each in snapshot.vm_snapshots
        if not each.deleting and (each.failed or each.name in next_of)
    )
    return min((left for time in times if (left := time.total_seconds()) > 0), default=None)


def _of_next_updates(snapshot: PoolSnapshot) -> set[str]:
    """The names of the snapshots that were taken before the next update of a VM."""
    return {found.name for vm in snapshot.active if (found := snapshot.next_snapshot(vm)) is not None}


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    held = {each.name: each.reason for each in held_by_snapshots(snapshot, now)}
    restores = list(failed_restores(snapshot))
    taken = {vm.name: snapshot.next_snapshot(vm) for vm in snapshot.active if vm.name in held}
    failed = [name for name, found in taken.items() if found is not None and found.failed]
    if held and not snapshot.serves_snapshots:
        message = f"{count_noun(len(held), 'VM', 'is', 'are')} not updated: {NOT_SERVED}"
        yield condition("SnapshotFailure", True, PoolReason.SNAPSHOTS_NOT_SERVED, message)
        return
    if restores:
        message = "the restore failed of " + join_names(f"{vm} ({problem})" for vm, problem in restores)
        yield condition("SnapshotFailure", True, PoolReason.RESTORE_FAILED, message)
        return
    if failed:
        message = f"not updated because of failed snapshots: {join_names(failed)}; {held[failed[0]]}"
        yield condition("SnapshotFailure", True, PoolReason.SNAPSHOT_FAILED, message)
        return
    yield condition("SnapshotFailure", False, PoolReason.NO_SNAPSHOT_FAILURE)


SNAPSHOTS = Rule(
    steps=(prune_snapshots, end_restores),
    again=(seconds_until_retry,),
    conditions=_conditions,
)
