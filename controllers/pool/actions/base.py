"""The base of a pool's actions, and what their effects have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Protocol, cast

from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot
from controllers.sets import actions
from controllers.shared.names import ordinal_of
from controllers.shared.vm import VM, RetainedDisk
from controllers.shared.vmi import VMI
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.live_updates import RunningGuest


class Action(actions.Action, reasons=PoolReason):
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

    def change(self, editor: SnapshotEditor) -> None:
        """Makes the changes that the action causes when it succeeds."""

    def begun(self, vm: VM, now: datetime) -> VM:
        """Its VM for the rest of a plan: how it counts once the action has begun."""
        return vm


class Changes(Protocol):
    def change(self, editor: SnapshotEditor) -> None: ...


class SnapshotEditor:
    """A snapshot that actions change one after another. What an action costs does not depend on the number of VMs."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self.snapshot = snapshot
        """the snapshot, apart from the collections below"""
        self.vms = {vm.uid: vm for vm in snapshot.vms}
        self.awaiting_release = {vm.uid: vm for vm in snapshot.awaiting_release}
        self.taken_ordinals = set(snapshot.taken_ordinals)
        self.retained_disks = {disk.name: disk for disk in snapshot.retained_disks}
        self.vm_snapshots = {each.name: each for each in snapshot.vm_snapshots}
        self.restores = {each.name: each for each in snapshot.restores}
        self._uids = {vm.vmi.uid: vm.uid for vm in snapshot.vms if vm.vmi}

    def result(self) -> PoolSnapshot:
        return replace(
            self.snapshot,
            vms=tuple(self.vms.values()),
            awaiting_release=tuple(self.awaiting_release.values()),
            taken_ordinals=frozenset(self.taken_ordinals),
            retained_disks=tuple(self.retained_disks.values()),
            vm_snapshots=tuple(self.vm_snapshots.values()),
            restores=tuple(self.restores.values()),
        )

    def change(self, **facts: Any) -> None:
        self.snapshot = replace(self.snapshot, **facts)

    def change_vm(self, uid: str, **facts: Any) -> None:
        if uid in self.vms:
            self.vms[uid] = replace(self.vms[uid], **facts)

    def remove_vm(self, name: str, uid: str) -> None:
        self.vms.pop(uid, None)
        self.awaiting_release.pop(uid, None)
        self.taken_ordinals.difference_update([ordinal_of(self.snapshot.pool.name, name)])

    def start(self, vm: VM) -> None:
        self.vms[vm.uid] = started(vm)

    def vm_of(self, vmi_uid: str) -> VM | None:
        """The VM that has this VMI."""
        vm = self.vms.get(self._uids.get(vmi_uid, ""))
        return vm if vm is not None and vm.vmi is not None and vm.vmi.uid == vmi_uid else None

    def set_labels(self, vmi_uid: str, labels: dict[str, str]) -> None:
        if (vm := self.vm_of(vmi_uid)) is not None and vm.vmi is not None:
            self.vms[vm.uid] = replace(vm, vmi=replace(vm.vmi, labels=labels))

    def set_in_service(self, vmi_uid: str, *, in_service: bool) -> None:
        if (vm := self.vm_of(vmi_uid)) is not None and vm.vmi is not None:
            others = {key: value for key, value in vm.vmi.labels.items() if key != meta.IN_SERVICE}
            self.set_labels(vmi_uid, others | ({meta.IN_SERVICE: "true"} if in_service else {}))

    def retain(self, name: str, vm: str, template_hash: str = "", *, replaced: bool = False) -> None:
        """Retains a disk for the VM with this name."""
        pool = self.snapshot.pool
        self.retained_disks[name] = RetainedDisk(pool.namespace, name, pool.uid, vm, template_hash, replaced=replaced)


def after(snapshot: PoolSnapshot, actions: Iterable[Changes]) -> PoolSnapshot:
    """The snapshot after the actions have succeeded."""
    editor = SnapshotEditor(snapshot)
    for action in actions:
        action.change(editor)
    return editor.result()


def started(vm: VM) -> VM:
    """The VM after its start, if its run strategy requires a start."""
    if not vm.should_run:
        return vm
    uid, labels = f"{vm.name} (simulated VMI)", {meta.REVISION: vm.revision, meta.IN_SERVICE: "true"}
    vmi = VMI(vm.namespace, vm.name, uid, owner_uid=vm.uid, labels=labels, phase="Running", ready=True, disks=vm.disks)
    vmi = replace(vmi, guest=RunningGuest(vm.live, vm.live))
    return replace(vm, vmi_exists=True, ready=True, start_failures=0, vmi=vmi, hold=None)
