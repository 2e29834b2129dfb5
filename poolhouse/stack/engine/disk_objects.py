"""What the engine keeps of disks: DataVolumes, PersistentVolumeClaims, and the snapshots and restores of VMs."""

import re
from dataclasses import dataclass, field
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.stack.engine import resources
from poolhouse.stack.engine.api_object import ApiObject, PhasedObject, common_fields

SNAPSHOT_DEADLINE_SECONDS = 300.0


@dataclass(frozen=True)
class DataVolume(PhasedObject):
    source: Json = field(default_factory=dict, hash=False)

    @property
    def ready(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def failed(self) -> bool:
        """Whether KubeVirt treats the import as failed: the phase is Failed, or the importer stopped with an error."""
        running = resources.find_condition(self.status.get("conditions") or (), "Running") or {}
        stopped = running.get("status") == "False" and running.get("reason") in ("Error", "ImagePullFailed")
        return self.phase == "Failed" or stopped


@dataclass(frozen=True)
class PVC(ApiObject):
    phase: str = ""
    size: str = ""
    """the storage request"""
    content: str = ""
    """content of the disk: image, blank, or tiny (the built-in Linux)"""
    data_volume_uid: str = ""
    restored_by: str = ""
    """UID of the VirtualMachineRestore that fills the disk"""


@dataclass(frozen=True)
class Snapshot(PhasedObject):
    """A VirtualMachineSnapshot."""

    vm: str = ""
    retains_content: bool = False
    deadline_seconds: float = SNAPSHOT_DEADLINE_SECONDS

    @property
    def content(self) -> str:
        return f"vmsnapshot-content-{self.uid}"

    @property
    def ready(self) -> bool:
        return self.status.get("readyToUse") is True


@dataclass(frozen=True)
class VolumeBackup:
    """The copy of a volume in a snapshot."""

    volume: str
    pvc: str
    snapshot: str
    """name of the copy, which is unique in the cluster"""


@dataclass(frozen=True)
class SnapshotContent(ApiObject):
    snapshot: str = ""
    vm: str = ""
    backups: tuple[VolumeBackup, ...] = ()
    status: Json = field(default_factory=dict, hash=False)

    @property
    def created_at(self) -> str:
        return str(self.status.get("creationTime") or "")


@dataclass(frozen=True)
class Restore(PhasedObject):
    """A VirtualMachineRestore."""

    vm: str = ""
    snapshot: str = ""
    readiness_policy: str = "WaitGracePeriod"
    volume_policy: str = "RandomizeNames"

    @property
    def complete(self) -> bool:
        return self.status.get("complete") is True

    @property
    def failed(self) -> bool:
        return resources.has_condition(self.status.get("conditions") or (), "Failure")


def read_data_volume(document: Json) -> DataVolume:
    source = (document.get("spec") or {}).get("source") or {}
    return DataVolume(**common_fields(document), source=source, status=document.get("status") or {})


def read_pvc(document: Json) -> PVC:
    spec = document.get("spec") or {}
    owners = document["metadata"].get("ownerReferences") or ()
    return PVC(
        **common_fields(document),
        phase=str((document.get("status") or {}).get("phase") or ""),
        size=str(((spec.get("resources") or {}).get("requests") or {}).get("storage") or ""),
        content=(document["metadata"].get("annotations") or {}).get(resources.CONTENT_ANNOTATION, ""),
        data_volume_uid=next((owner["uid"] for owner in owners if owner.get("kind") == "DataVolume"), ""),
        restored_by=(document["metadata"].get("annotations") or {}).get(resources.LAST_RESTORE_ANNOTATION, ""),
    )


def read_snapshot(document: Json) -> Snapshot:
    spec = document["spec"]
    return Snapshot(
        **common_fields(document),
        vm=str(spec["source"].get("name") or ""),
        retains_content=spec.get("deletionPolicy") == "Retain",
        deadline_seconds=_go_duration(spec.get("failureDeadline"), SNAPSHOT_DEADLINE_SECONDS),
        status=document.get("status") or {},
    )


def read_snapshot_content(document: Json) -> SnapshotContent:
    spec = document["spec"]
    machine = (spec.get("source") or {}).get("virtualMachine") or {}
    backups = (
        VolumeBackup(each["volumeName"], each["persistentVolumeClaim"]["metadata"]["name"], each["volumeSnapshotName"])
        for each in spec.get("volumeBackups") or ()
        if each.get("volumeSnapshotName")
    )
    return SnapshotContent(
        **common_fields(document),
        snapshot=str(spec.get("virtualMachineSnapshotName") or ""),
        vm=str((machine.get("metadata") or {}).get("name") or ""),
        backups=tuple(backups),
        status=document.get("status") or {},
    )


def read_restore(document: Json) -> Restore:
    spec = document["spec"]
    return Restore(
        **common_fields(document),
        vm=str(spec["target"].get("name") or ""),
        snapshot=str(spec.get("virtualMachineSnapshotName") or ""),
        readiness_policy=str(spec.get("targetReadinessPolicy") or "WaitGracePeriod"),
        volume_policy=str(spec.get("volumeRestorePolicy") or "RandomizeNames"),
        status=document.get("status") or {},
    )


_GO_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def _go_duration(text: Any, default: float) -> float:
    """Returns the seconds of a duration such as `1m30s`; the default for an absent or invalid one."""
    if not isinstance(text, str) or not re.fullmatch(r"([0-9.]+(h|ms|m|s))+", text):
        return default
    return sum(float(number) * _GO_UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(h|ms|m|s)", text))
