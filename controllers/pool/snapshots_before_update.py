"""Decides about the snapshot that a pool takes of a VM before an update, and which snapshots are deleted.

KubeVirt's garbage collection does not delete a snapshot with its VM, because the snapshot belongs to the
ControllerRevision of the template that the VM had. It is deleted with that revision: beyond revisionHistoryLimit, or
with the pool.
"""

from datetime import datetime, timedelta

from controllers.pool.actions import TakeSnapshot
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.pool.vm_snapshots import VM_SNAPSHOTS, VMSnapshot, snapshot_name, storage_requests
from controllers.pool.waiting import Waiting
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.kinds.pool_strategies import UpdateProactive

RETRY_AFTER = timedelta(minutes=10)
"""Age at which a failed snapshot is deleted and taken again. KubeVirt lets a snapshot fail after 5 minutes."""
MAX_AGE = timedelta(days=1)
"""Age at which a snapshot is too old for the update that follows it, for example because a maintenance window ended."""
NOT_SERVED = (
    f"the cluster does not serve {VM_SNAPSHOTS.plural}.{VM_SNAPSHOTS.group}/{VM_SNAPSHOTS.version}, which KubeVirt has"
    " since 1.3: install it, or set snapshotBeforeUpdate to false"
)


def before_update(snapshot: PoolSnapshot, vm: VM, now: datetime) -> TakeSnapshot | str:
    """What must be done before the VM may be updated, or why it must wait, or ""."""
    if not is_needed(snapshot, vm):
        return ""
    if not snapshot.serves_snapshots:
        return NOT_SERVED
    found = snapshot.next_snapshot(vm)
    if found is None or found.deleting:
        return _take(snapshot, vm) if found is None else f"its snapshot {found.name} is being deleted"
    if found.failed:
        return f"its snapshot {found.name} failed: {found.problem or 'no reason given'}"
    if not found.ready:
        progress = f": {found.problem}" if found.problem else ""
        return f"its snapshot {found.name} is not ready yet{progress}"
    if is_old(found, now):
        return f"its snapshot {found.name} is a day old, and is taken again"
    # KubeVirt takes a moment to allow changes of the VM's run strategy and volumes again.
    locked = vm.snapshot_in_progress
    return f"KubeVirt has not released it after snapshot {locked}" if locked else ""


def is_needed(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the update of this VM needs a snapshot. A change that only labels VMs and VMIs does not reach a guest. A
    rollback must not wait for snapshots of VMs that fail."""
    strategy = snapshot.pool.spec.update_strategy.chosen
    if not isinstance(strategy, UpdateProactive) or not strategy.snapshot_before_update or snapshot.aborted:
        return False
    has = snapshot.revisions_by_label.get(vm.revision)
    return has is None or has.vmi_hash != snapshot.revision.vmi_hash or bool(snapshot.disks_to_replace(vm))


@once
def held_by_snapshots(snapshot: PoolSnapshot, now: datetime) -> tuple[Waiting, ...]:
    """Outdated VMs that wait because of a snapshot that is not ready, failed or is impossible."""
    found = ((vm.name, before_update(snapshot, vm, now)) for vm in snapshot.active if snapshot.outdated(vm))
    return tuple(Waiting(name, answer) for name, answer in found if answer and isinstance(answer, str))


def _take(snapshot: PoolSnapshot, vm: VM) -> TakeSnapshot:
    sizes = " + ".join(storage_requests(snapshot.pool.spec.template))
    reason = f"before the update, of disks with {sizes}" if sizes else "before the update; it has no disks"
    has = snapshot.revisions_by_label.get(vm.revision)
    name, uid = (has.name, has.uid) if has is not None else ("", "")
    return TakeSnapshot(vm.name, vm.uid, snapshot_name(vm), vm.revision, name, uid, vm.updates + 1, reason)


def is_old(each: VMSnapshot, now: datetime) -> bool:
    return now - parse_time(each.created_at) >= MAX_AGE


def retry_at(each: VMSnapshot) -> datetime:
    return parse_time(each.created_at) + RETRY_AFTER
