"""Decides which VMs get the state of a snapshot again, when a user undoes an update with its snapshots.

A VirtualMachineRestore stops the VM, and replaces its disks and its spec by those of the snapshot. The controller then
gives the VM its revision and its run strategy again, in one write, and deletes the restore. What the VM gets again is
noted in the VM before the restore is created, so that it is known after somebody has deleted the restore or its CRD.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

from controllers.pool.actions import ForgetRestore, LabelState, PruneRestore, Restore, Update
from controllers.pool.disk_templates import format_hashes
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.vm_snapshots import NOT_RUNNING, VMRestore, VMSnapshot, restore_name
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
    begun = vm.awaits_state or vm.uid in snapshot.restores_by_vm
    return begun or _requested(snapshot, vm) is not None


def _begin(snapshot: PoolSnapshot, vm: VM, source: VMSnapshot) -> Restore:
    request = snapshot.pool.restore
    runs = vm.run_strategy if vm.should_run or vm.vmi_exists else vm.run_strategy + NOT_RUNNING
    reason = f"the update is undone with the snapshot of {source.created_at}"
    return Restore(vm.name, vm.uid, restore_name(vm, request), source.name, request, runs, reason)


def continued_restore(snapshot: PoolSnapshot, vm: VM) -> Update | Waiting | None:
    """The next step of the restore that replaces the VM's disks now, or has just replaced them; None without one."""
    restore = snapshot.restores_by_vm.get(vm.uid)
    # Anybody can label a restore. A VM with another name would get the disks of the pool's VM with its number.
    if vm.ordinal is None or vm.base_name != snapshot.pool.name:
        return None
    if restore is None:
        return Waiting(vm.name, LOST) if _has_lost_restore(snapshot, vm) else None
    if restore.complete:
        # The annotation still describes the disks of the undone update. Had the snapshot's disks been older than the
        # template that it was taken with, an update would have replaced them.
        replaced = snapshot.pool.replaces_disks and not vm.protected
        disks = format_hashes(snapshot.revision.disks) if replaced else vm.disk_templates
        before = vm.run_strategy_before or vm.run_strategy
        return Update(
            *(vm.name, vm.uid, vm.ordinal, vm.revision, snapshot.revision.label, "its disks are restored", disks),
            restored=restore.request,
            run_strategy=before.removesuffix(NOT_RUNNING),
            start=not before.endswith(NOT_RUNNING),
        )
    if problem := _problem(snapshot, restore):
        return Waiting(vm.name, f"its restore {restore.name} failed: {problem}. Delete it to try again")
    progress = f": {restore.problem}" if restore.problem else ""
    return Waiting(vm.name, f"its disks are being restored by {restore.name}{progress}")


LOST = (
    "it was stopped for a restore that is gone, as is its snapshot or the request; look at its disks, and start it with"
    " `virtctl start`"
)


def _has_lost_restore(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the restore of the VM has disappeared before its end, and cannot begin again. The pool does not start the
    VM, because some of its disks may be replaced, and some not."""
    return vm.awaits_state and vm.uid not in snapshot.restores_by_vm and _requested(snapshot, vm) is None


def _forget_restores(snapshot: PoolSnapshot) -> Iterator[ForgetRestore]:
    """Ends the wait for restores that have disappeared, of VMs that were not stopped or that somebody has started."""
    for vm in snapshot.active:
        if vm.ready and _has_lost_restore(snapshot, vm):
            yield ForgetRestore(vm.name, vm.uid, vm.restore, "its restore is gone, and it runs")


def _problem(snapshot: PoolSnapshot, restore: VMRestore) -> str:
    """Why the restore does not go on, or ""."""
    if restore.failed:
        return restore.problem or "no reason given"
    lost = not restore.complete and all(each.name != restore.snapshot for each in snapshot.vm_snapshots)
    return f"its snapshot {restore.snapshot} is gone" if lost else ""


def failed_restores(snapshot: PoolSnapshot) -> Iterator[tuple[str, str]]:
    """The VMs whose restores do not go on, with the reasons."""
    for each in snapshot.restores_by_vm.values():
        if problem := _problem(snapshot, each):
            yield each.vm_name, problem
    for vm in snapshot.active:
        if _has_lost_restore(snapshot, vm):
            yield vm.name, LOST


NO_STATE_CLAIM = "no backend PVC when there should be one"
"""KubeVirt's text while it looks for a labelled claim with the VM's TPM and EFI variables."""


def _label_states(snapshot: PoolSnapshot) -> Iterator[LabelState]:
    """Ends the wait of restores for a label that KubeVirt itself has left out."""
    for each in snapshot.restores_by_vm.values():
        if each.state_claim and each.problem == NO_STATE_CLAIM and not each.complete and not each.failed:
            yield LabelState(each.vm_name, each.state_claim, each.name, f"its restore waits: {each.problem}")


def _prune_restores(snapshot: PoolSnapshot) -> Iterator[PruneRestore]:
    """Deletes restores whose VM has its revision and run strategy again, and those of VMs that are gone."""
    vms = {vm.uid: vm for vm in snapshot.vms}
    for each in snapshot.restores:
        vm = vms.get(each.vm_uid)
        if vm is None or vm.restored == each.request:
            yield PruneRestore(each.name, each.uid, "the VM is gone" if vm is None else "the restore is complete")


def end_restores(snapshot: PoolSnapshot, now: datetime) -> Iterator[ForgetRestore | LabelState | PruneRestore]:
    yield from _label_states(snapshot)
    yield from _forget_restores(snapshot)
    yield from _prune_restores(snapshot)
