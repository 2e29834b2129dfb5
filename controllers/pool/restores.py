"""Decides which VMs get the state of a snapshot again, when a user undoes an update with its snapshots.

A VirtualMachineRestore stops the VM, and replaces its disks and its spec by those of the snapshot. The controller then
gives the VM its revision and its run strategy again, in one write, and deletes the restore.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

from controllers.pool.actions import LabelState, PruneRestore, Restore, Update
from controllers.pool.disk_templates import format_hashes
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.vm_snapshots import VMSnapshot, restore_name
from controllers.pool.waiting import Waiting
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.timestamps import known_time, parse_time


def requested_restore(snapshot: PoolSnapshot, vm: VM) -> Callable[[], Restore] | None:
    """What begins the restore that the pool must do with this VM; None without a request, or once it is done."""
    source = _requested(snapshot, vm)
    return partial(_begin, snapshot, vm, source) if source is not None else None


def _requested(snapshot: PoolSnapshot, vm: VM) -> VMSnapshot | None:
    """The snapshot that the pool must restore into this VM; None without a request, or once it is done.

    A VM that was not updated since its snapshot keeps what its guest has written since then."""
    revision, _, time = snapshot.pool.restore.rpartition("=")
    if revision != snapshot.revision.name or snapshot.aborted or vm.restored == snapshot.pool.restore:
        return None
    until = known_time(time)
    if until is None:
        return None
    found = [
        each
        for each in snapshot.snapshots_by_vm.get(vm.uid, ())
        if each.revision == snapshot.revision.label
        and each.usable
        and each.update <= vm.updates
        and parse_time(each.created_at) <= until
    ]
    return max(found, key=lambda each: each.update, default=None)


def awaits_restore(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether a restore of the VM has begun, or is still to begin."""
    return vm.uid in snapshot.restores_by_vm or _requested(snapshot, vm) is not None


def _begin(snapshot: PoolSnapshot, vm: VM, source: VMSnapshot) -> Restore:
    request = snapshot.pool.restore
    ran = vm.should_run or vm.vmi_exists
    reason = f"the update is undone with the snapshot of {source.created_at}"
    return Restore(vm.name, vm.uid, restore_name(vm, request), source.name, request, vm.run_strategy, ran, reason)


def continued_restore(snapshot: PoolSnapshot, vm: VM) -> Update | Waiting | None:
    """The next step of the restore that replaces the VM's disks now, or has just replaced them; None without one."""
    restore = snapshot.restores_by_vm.get(vm.uid)
    # Anybody can label a restore. A VM with another name would get the disks of the pool's VM with its number.
    if restore is None or vm.ordinal is None or vm.base_name != snapshot.pool.name:
        return None
    if restore.complete:
        # The annotation still describes the disks of the undone update. Had the snapshot's disks been older than the
        # template that it was taken with, an update would have replaced them.
        replaced = snapshot.pool.replaces_disks and not vm.protected
        return Update(
            vm.name,
            vm.uid,
            vm.ordinal,
            vm.revision,
            snapshot.revision.label,
            "its disks are restored",
            format_hashes(snapshot.revision.disks) if replaced else vm.disk_templates,
            restored=restore.request,
            run_strategy=restore.run_strategy,
            start=restore.ran,
        )
    if restore.failed:
        problem = restore.problem or "no reason given"
        return Waiting(vm.name, f"its restore {restore.name} failed: {problem}. Delete it to try again")
    progress = f": {restore.problem}" if restore.problem else ""
    return Waiting(vm.name, f"its disks are being restored by {restore.name}{progress}")


NO_STATE_CLAIM = "no backend PVC when there should be one"
"""KubeVirt's text while it looks for a labelled claim with the VM's TPM and EFI variables."""


def label_states(snapshot: PoolSnapshot, now: datetime) -> Iterator[LabelState]:
    """Ends the wait of restores for a label that KubeVirt itself has left out."""
    for each in snapshot.restores_by_vm.values():
        if each.state_claim and each.problem == NO_STATE_CLAIM and not each.complete and not each.failed:
            yield LabelState(each.vm_name, each.state_claim, each.name, f"its restore waits: {each.problem}")


def prune_restores(snapshot: PoolSnapshot, now: datetime) -> Iterator[PruneRestore]:
    """Deletes restores whose VM has its revision and run strategy again, and those of VMs that are gone."""
    vms = {vm.uid: vm for vm in snapshot.vms}
    for each in snapshot.restores:
        vm = vms.get(each.vm_uid)
        if vm is None or vm.restored == each.request:
            yield PruneRestore(each.name, each.uid, "the VM is gone" if vm is None else "the restore is complete")
