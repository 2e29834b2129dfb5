"""KubeVirt's snapshots of VMs, and the return to them."""

from typing import Annotated, Literal

from pydantic import Field

from poolhouse.api.kinds.kind import Column, Kind
from poolhouse.api.kinds.model import Model, OpenModel


class ObjectName(OpenModel):
    """An object of the same namespace."""

    api_group: str | None = None
    """API group of the object, such as kubevirt.io."""
    kind: str
    """Kind of the object, such as VirtualMachine."""
    name: str
    """Name of the object."""


class SnapshotSpec(OpenModel):
    """VM to take a snapshot of."""

    source: ObjectName
    """The VirtualMachine."""
    deletion_policy: Literal["Delete", "Retain"] | None = None
    """Whether the content is deleted with the snapshot. Defaults to Delete."""
    failure_deadline: str | None = None
    """Time after which the snapshot fails, such as `5m0s`, the default."""


class SnapshotError(OpenModel):
    """Last error."""

    message: str | None = None
    """Message of the error."""
    time: str | None = None
    """Time of the error."""


class SnapshotVolumes(OpenModel):
    """Volumes of the VM."""

    included_volumes: list[str] | None = None
    """Names of the volumes in the snapshot."""
    excluded_volumes: list[str] | None = None
    """Names of the volumes that are not in the snapshot."""


class SnapshotCondition(OpenModel):
    """A condition of the operation. KubeVirt writes its message into the reason."""

    type: str
    """Ready, Progressing or Failure."""
    status: str
    """True, False or Unknown."""
    reason: str | None = None
    """Text for users."""


class SnapshotStatus(OpenModel):
    """Observed state of the snapshot."""

    phase: str | None = None
    """InProgress, Succeeded, Failed, Deleting or Unknown."""
    ready_to_use: bool | None = None
    """Whether the snapshot can be restored."""
    creation_time: str | None = None
    """Time of the content."""
    source_uid: Annotated[str | None, Field(alias="sourceUID")] = None
    """UID of the VM."""
    virtual_machine_snapshot_content_name: str | None = None
    """Name of the VirtualMachineSnapshotContent."""
    indications: list[str] | None = None
    """State of the VM when the snapshot was taken: Online, GuestAgent, NoGuestAgent, Paused."""
    snapshot_volumes: SnapshotVolumes | None = None
    """Volumes of the VM."""
    error: SnapshotError | None = None
    """Last error."""
    conditions: list[SnapshotCondition] | None = None
    """Ready, Progressing, Failure."""


class SnapshotContentSpec(OpenModel):
    """The VM and its disks."""

    virtual_machine_snapshot_name: str | None = None
    """Name of the VirtualMachineSnapshot."""


class SnapshotContentStatus(OpenModel):
    """Observed state of the content."""

    creation_time: str | None = None
    """Time at which the disks were copied."""
    ready_to_use: bool | None = None
    """Whether the content can be restored."""
    error: SnapshotError | None = None
    """Last error."""


class RestoreSpec(OpenModel):
    """Snapshot to restore, and the VM that gets it."""

    target: ObjectName
    """The VirtualMachine that gets the disks and the spec of the snapshot."""
    virtual_machine_snapshot_name: str
    """Name of the VirtualMachineSnapshot."""
    target_readiness_policy: Literal["StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually"] = (
        "WaitGracePeriod"
    )
    """What happens if the VM runs."""
    volume_restore_policy: Literal["RandomizeNames", "InPlace", "PrefixTargetName"] | None = None
    """Names of the restored volumes. Defaults to RandomizeNames."""


class RestoreStatus(OpenModel):
    """Observed state of the restore."""

    complete: bool | None = None
    """Whether the VM has the disks and the spec of the snapshot."""
    restore_time: str | None = None
    """Time at which the restore was complete."""
    deleted_data_volumes: list[str] | None = None
    """DataVolumes that the restored ones replace."""
    conditions: list[SnapshotCondition] | None = None
    """Ready, Progressing, Failure."""


def _snapshot(kind: str, short: str, doc: str, spec: type[Model], status: type[Model], *columns: Column) -> Kind:
    return Kind(
        group="snapshot.kubevirt.io",
        versions=("v1beta1",),
        kind=kind,
        plural=kind.lower() + "s",
        short_names=(short, short + "s"),
        categories=("all",),
        doc=doc,
        spec=spec,
        status=status,
        columns=columns,
    )


_READY_TO_USE = Column("ReadyToUse", ".status.readyToUse", type="boolean")
_CREATION_TIME = Column("CreationTime", ".status.creationTime", type="date")
_ERROR = Column("Error", ".status.error.message")

VM_SNAPSHOT = _snapshot(
    "VirtualMachineSnapshot",
    "vmsnapshot",
    "A snapshot of a VM and its disks.",
    SnapshotSpec,
    SnapshotStatus,
    Column("SourceKind", ".spec.source.kind"),
    Column("SourceName", ".spec.source.name"),
    Column("Phase", ".status.phase"),
    _READY_TO_USE,
    _CREATION_TIME,
    _ERROR,
)
VM_SNAPSHOT_CONTENT = _snapshot(
    "VirtualMachineSnapshotContent",
    "vmsnapshotcontent",
    "The VM and the disks of a snapshot.",
    SnapshotContentSpec,
    SnapshotContentStatus,
    _READY_TO_USE,
    _CREATION_TIME,
    _ERROR,
)
VM_RESTORE = _snapshot(
    "VirtualMachineRestore",
    "vmrestore",
    "The return of a VM to a snapshot.",
    RestoreSpec,
    RestoreStatus,
    Column("TargetKind", ".spec.target.kind"),
    Column("TargetName", ".spec.target.name"),
    Column("Complete", ".status.complete", type="boolean"),
    Column("RestoreTime", ".status.restoreTime", type="date"),
)
