"""The base of a pool's actions, and what their effects have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, cast

from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot
from controllers.sets import actions
from controllers.shared.names import ordinal_of
from controllers.shared.vm import VM
from controllers.shared.vmi import VMI
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.live_updates import RunningGuest


class Action(actions.Action[PoolSnapshot], reasons=PoolReason):
    """Something that a pool does. `controllers.pool.writes` has its requests."""

    recorded: ClassVar[bool] = False
    """Whether the pool's status records the action, because users ask about it later. Others only prepare or complete
    such an action."""
    names_disks: ClassVar[bool] = False
    """Whether the action gives a VM names of disks from a template. Other pools with these names wait for it."""

    def because(self, reason: str) -> Action:
        """The action with another reason."""
        changed: Action = replace(cast(Any, self), reason=reason)
        return changed

    def begun(self, vm: VM, now: datetime) -> VM:
        """Its VM for the rest of a plan: how it counts once the action has begun."""
        return vm


def change_vm(snapshot: PoolSnapshot, uid: str, **facts: Any) -> PoolSnapshot:
    return replace(snapshot, vms=tuple(replace(vm, **facts) if vm.uid == uid else vm for vm in snapshot.vms))


def change_vmi(snapshot: PoolSnapshot, vmi_uid: str, labels: dict[str, str]) -> PoolSnapshot:
    """The snapshot in which the VMI has these labels."""

    def changed(vm: VM) -> VM:
        return replace(vm, vmi=replace(vm.vmi, labels=labels)) if vm.vmi and vm.vmi.uid == vmi_uid else vm

    return replace(snapshot, vms=tuple(map(changed, snapshot.vms)))


def set_in_service(snapshot: PoolSnapshot, vmi_uid: str, *, in_service: bool) -> PoolSnapshot:
    found = next((vm.vmi for vm in snapshot.vms if vm.vmi and vm.vmi.uid == vmi_uid), None)
    if found is None:
        return snapshot
    others = {key: value for key, value in found.labels.items() if key != meta.IN_SERVICE}
    return change_vmi(snapshot, vmi_uid, others | ({meta.IN_SERVICE: "true"} if in_service else {}))


def started(vm: VM) -> VM:
    """The VM after its start, if its run strategy requires a start."""
    if not vm.should_run:
        return vm
    uid, labels = f"{vm.name} (simulated VMI)", {meta.REVISION: vm.revision, meta.IN_SERVICE: "true"}
    vmi = VMI(vm.namespace, vm.name, uid, owner_uid=vm.uid, labels=labels, phase="Running", ready=True, disks=vm.disks)
    vmi = replace(vmi, guest=RunningGuest(vm.live, vm.live))
    return replace(vm, vmi_exists=True, ready=True, start_failures=0, vmi=vmi, hold=None)


def start(snapshot: PoolSnapshot, uids: Iterable[str]) -> PoolSnapshot:
    """The snapshot after the start of the VMs with these UIDs."""
    found = set(uids)
    return replace(snapshot, vms=tuple(started(vm) if vm.uid in found else vm for vm in snapshot.vms))


def without_vm(snapshot: PoolSnapshot, name: str, uid: str) -> PoolSnapshot:
    return replace(
        snapshot,
        vms=tuple(vm for vm in snapshot.vms if vm.uid != uid),
        awaiting_release=tuple(vm for vm in snapshot.awaiting_release if vm.uid != uid),
        taken_ordinals=snapshot.taken_ordinals - {ordinal_of(snapshot.pool.name, name)},
    )
