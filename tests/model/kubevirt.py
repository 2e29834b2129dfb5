"""What the API server and KubeVirt do with the writes of a pool, as values.

`after` is the end of actions. Here an action ends in steps: `written` is what the API server stores, and
`progress` has what KubeVirt may do next. A test shows that both ends are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Any

from controllers.pool import actions
from controllers.pool.actions import Action
from controllers.pool.actions.base import SnapshotEditor, after, started
from controllers.pool.data_volumes import DiskState
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.names import ordinal_of
from controllers.shared.vm import VM, LifecycleHold, RetainedDisk
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds import meta

CRASHING = "CrashLoopBackOff"


def change_vm(cluster: PoolSnapshot, uid: str, **facts: Any) -> PoolSnapshot:
    return replace(cluster, vms=tuple(replace(vm, **facts) if vm.uid == uid else vm for vm in cluster.vms))


def without_vm(cluster: PoolSnapshot, name: str, uid: str) -> PoolSnapshot:
    editor = SnapshotEditor(cluster)
    editor.remove_vm(name, uid)
    return editor.result()


def written(action: Action, cluster: PoolSnapshot, seen: PoolSnapshot, now: datetime) -> PoolSnapshot | None:
    """The cluster after the request of an action that was planned from `seen`. None if the API server refuses it."""
    vm = next((vm for vm in cluster.vms if vm.name == action.name), None)
    before = next((vm for vm in seen.vms if vm.name == action.name), None)
    unchanged = vm is not None and before is not None and replace(vm, vmi=None) == replace(before, vmi=None)
    match action:
        case actions.Create():
            return _created(action, cluster) if vm is None else None
        case actions.Delete() if vm is None or not unchanged or vm.deleting:
            return None
        case actions.Heal() if vm is None or vm.uid != action.uid or vm.deleting or vm.ready:
            return None
        case actions.Delete() | actions.Restart() if action.spares_available and vm is not None and vm.available:
            return None
        case actions.Delete() | actions.Heal():
            retains = isinstance(action, actions.Delete) and action.retain_disks
            retained_by = cluster.pool.uid if retains else ""
            facts: dict[str, Any] = {"deleted_at": format_time(now), "retained_by": retained_by}
            return change_vm(cluster, action.uid, retains_disks=retains, **facts)
        case actions.ReleaseDisks():
            return _released(action, cluster)
        case actions.Restart():
            if vm is None or vm.vmi is None or vm.vmi.uid != action.vmi_uid:
                return None
            return change_vm(cluster, vm.uid, vmi=replace(vm.vmi, deleted_at=format_time(now)))
        case actions.Update():
            return _updated(action, cluster) if vm is not None and vm.uid == action.uid and not vm.deleting else None
        case actions.TakeSnapshot():
            if any(each.name == action.snapshot for each in cluster.vm_snapshots):
                return None
            *others, taken = after(cluster, [action]).vm_snapshots
            taken = replace(taken, ready=False, created_at=format_time(now))
            return replace(cluster, vm_snapshots=(*others, taken))
        case actions.Hold():
            if not unchanged or (action.spares_available and vm is not None and vm.available):
                return None
            hold = LifecycleHold(action.transition, action.since, action.vmi_uid, action.hooks)
            return change_vm(after(cluster, [action]), action.uid, hold=hold)
        case actions.EndHold() | actions.RemoveFinalizer() if not unchanged:
            return None
    return after(cluster, [action])


def half_written(action: Action, cluster: PoolSnapshot) -> PoolSnapshot:
    """The cluster after the first of several requests of an action."""
    if isinstance(action, actions.Delete) and action.retain_disks:
        return change_vm(cluster, action.uid, retains_disks=True, retained_by=cluster.pool.uid)
    return cluster


def _created(action: actions.Create, cluster: PoolSnapshot) -> PoolSnapshot:
    *others, made = after(cluster, [action]).vms
    uids = {vm.uid for vm in cluster.vms} | {each.vm_uid for each in cluster.vm_snapshots} | cluster.refused
    uid = unused(f"u-{made.name}", uids)
    stopped = replace(made, uid=uid, vmi=None, vmi_exists=False, ready=False)
    return with_names(replace(cluster, vms=(*others, stopped)))


def _released(action: actions.ReleaseDisks, cluster: PoolSnapshot) -> PoolSnapshot:
    found = tuple(
        RetainedDisk(cluster.pool.namespace, name, action.retained_by, action.name, uid=f"disk-{name}")
        for name in action.disks
    )
    return change_vm(
        replace(cluster, retained_disks=(*cluster.retained_disks, *found)), action.uid, retains_disks=False
    )


def _updated(action: actions.Update, cluster: PoolSnapshot) -> PoolSnapshot:
    new = {each.new: DiskState("Pending") for each in action.replacements if not each.existing}
    halts = action.halts and next(vm.vmi for vm in cluster.vms if vm.uid == action.uid)
    updated = after(replace(cluster, unready_disks={**cluster.unready_disks, **new}), [action])
    return change_vm(updated, action.uid, vmi=halts, vmi_exists=True, ready=True) if halts else updated


def progress(cluster: PoolSnapshot, now: datetime) -> Iterator[tuple[str, PoolSnapshot]]:
    """What KubeVirt and the garbage collector do next: each step by itself."""
    for vm in cluster.vms:
        if vm.deleting:
            if not vm.retains_disks:
                yield f"{vm.name} is gone", with_names(without_vm(cluster, vm.name, vm.uid))
        elif vm.vmi is not None and (vm.vmi.deleting or not vm.should_run):
            stopped = change_vm(cluster, vm.uid, vmi=None, vmi_exists=False, ready=False)
            yield f"{vm.name} has stopped", stopped
        elif vm.should_run and not vm.start_failures and vm.vmi is None:
            yield f"{vm.name} starts", start(cluster, vm)
        elif vm.vmi is not None and not vm.vmi.ready:
            ready = change_vm(cluster, vm.uid, ready=True, vmi=replace(vm.vmi, ready=True, phase="Running"))
            yield f"{vm.name} is ready", ready
    for each in cluster.vm_snapshots:
        if not each.ready and not each.failed:
            yield f"snapshot of {each.vm_name} is ready", with_snapshot(cluster, each.name, ready=True)
    for disk in cluster.unready_disks:
        left = {name: state for name, state in cluster.unready_disks.items() if name != disk}
        yield f"{disk} has its data", replace(cluster, unready_disks=left)


def start(cluster: PoolSnapshot, vm: VM) -> PoolSnapshot:
    vmi = started(vm).vmi
    assert vmi is not None
    labels = {meta.REVISION: vm.revision}
    if cluster.pool.spec.lifecycle_hooks:
        labels[meta.IN_SERVICE] = "true"
    uids = {vm.hold.vmi_uid if vm.hold else ""} | cluster.refused
    uid = unused(f"run-{vm.name}", uids)
    vmi = replace(vmi, uid=uid, ready=False, phase="Scheduling", labels=labels)
    return change_vm(cluster, vm.uid, vmi=vmi, vmi_exists=True)


def with_snapshot(cluster: PoolSnapshot, name: str, **facts: Any) -> PoolSnapshot:
    found = (replace(each, **facts) if each.name == name else each for each in cluster.vm_snapshots)
    return replace(cluster, vm_snapshots=tuple(found))


def with_names(cluster: PoolSnapshot) -> PoolSnapshot:
    """The cluster with what follows from its VMs."""
    taken = {ordinal for vm in cluster.vms if (ordinal := ordinal_of(cluster.pool.name, vm.name)) is not None}
    return replace(cluster, taken_ordinals=frozenset(taken))


def unused(prefix: str, uids: Set[str]) -> str:
    """The first UID that is not one of these. With few UIDs there are few states."""
    return next(uid for number in count() if (uid := f"{prefix}-{number}") not in uids)
