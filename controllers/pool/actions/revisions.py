"""Actions on ControllerRevisions, and on the labels by which VMIs tell their revision."""

from dataclasses import dataclass, replace

from controllers.pool.actions.base import Action, SnapshotEditor
from controllers.pool.revisions import Revision
from poolhouse.api.kinds import meta


@dataclass(frozen=True)
class SaveRevision(Action, past="saved revision"):
    """Saves the template as a ControllerRevision, which identifies the template of a VM."""

    concerns_vm = False
    name: str
    number: int
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        snapshot = editor.snapshot
        editor.change(revision_saved=True, revisions=(*snapshot.revisions, snapshot.revision))


@dataclass(frozen=True)
class AdoptRevision(Action, past="adopted revision"):
    """Makes the pool the owner of its ControllerRevision again, so that the revision is deleted with the pool."""

    concerns_vm = False
    name: str
    uid: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        revisions = editor.snapshot.revisions
        adopted = (replace(each, owned=True) if each.name == self.name else each for each in revisions)
        editor.change(revisions=tuple(adopted))


@dataclass(frozen=True)
class PinMachineType(Action, past="pinned the machine type of revision"):
    """Records which machine type the VMs have that the pool creates from the revision."""

    concerns_vm = False
    name: str
    uid: str
    machine_type: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        def pinned(each: Revision) -> Revision:
            return replace(each, pinned_machine_type=self.machine_type) if each.name == self.name else each

        snapshot = editor.snapshot
        editor.change(revision=pinned(snapshot.revision), revisions=tuple(map(pinned, snapshot.revisions)))


@dataclass(frozen=True)
class PruneRevision(Action, past="deleted revision"):
    concerns_vm = False
    name: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.change(revisions=tuple(each for each in editor.snapshot.revisions if each.name != self.name))


@dataclass(frozen=True)
class LabelVMI(Action, past="wrote the template's labels and annotations into the VMI of VM"):
    """Brings labels and annotations of a running VMI up to date that has the template's spec already."""

    name: str
    vmi_uid: str
    ordinal: int
    before: str
    """label of the VMI's revision before the update"""
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.set_labels(self.vmi_uid, {meta.REVISION: editor.snapshot.revision.label})
