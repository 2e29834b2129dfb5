"""Actions for VMs that lifecycle hooks hold."""

from dataclasses import dataclass, replace
from datetime import datetime

from controllers.pool.actions.base import Action, SnapshotEditor
from controllers.shared.vm import VM, LifecycleHold
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.pool_lifecycle import Transition

Hooks = tuple[tuple[str, str], ...]
"""names of hooks, with the times at which they time out"""


def stopping(vm: VM, now: datetime, transition: Transition = "Restarting", hooks: Hooks = ()) -> VM:
    """The VM for the rest of a plan that stops it. Its hooks have only begun, so that a later step of this plan waits
    for them too."""
    return replace(vm, hold=LifecycleHold(transition, format_time(now), vm.vmi.uid if vm.vmi else "", hooks))


@dataclass(frozen=True)
class Hold(Action, past="holds VM"):
    """Takes the VM out of its Services, and marks it for the owners of lifecycle hooks."""

    recorded = True
    name: str
    uid: str
    resource_version: str
    transition: Transition
    """the transition that waits"""
    vmi_uid: str
    since: str
    hooks: Hooks
    former: tuple[str, ...]
    """hooks of an earlier transition whose annotations are removed"""
    reason: str
    spares_available: bool = False
    """Whether the write is skipped if the VM has become available, as in `Delete`."""

    def begun(self, vm: VM, now: datetime) -> VM:
        return stopping(vm, now, self.transition, self.hooks)

    def change(self, editor: SnapshotEditor) -> None:
        # The owners of the hooks are assumed to end them.
        editor.change_vm(self.uid, hold=LifecycleHold(self.transition, self.since, self.vmi_uid))
        editor.set_in_service(self.vmi_uid, in_service=False)


@dataclass(frozen=True)
class EndHold(Action, past="no longer holds VM"):
    """Removes the marks of a Hold. The VM returns to its Services with the next plan."""

    recorded = True
    name: str
    uid: str
    resource_version: str
    hooks: tuple[str, ...]
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.change_vm(self.uid, hold=None)


@dataclass(frozen=True)
class SetInService(Action, past="set the label poolhouse.dev/in-service of VM"):
    """Writes or removes the label of the VMI and of its launcher pods."""

    name: str
    vmi_uid: str
    in_service: bool
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.set_in_service(self.vmi_uid, in_service=self.in_service)
