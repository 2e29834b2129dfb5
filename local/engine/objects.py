"""What the engine keeps of each object: small frozen values. `reading` makes them from documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from local.engine import times
from local.engine.conditions import find_condition
from runtime.resource import Key, Resource

Json = dict[str, Any]
Pairs = tuple[tuple[str, str], ...]

EPOCH = datetime.fromtimestamp(0, UTC)
GRACE_SECONDS = 30.0
DEFAULT_MEMORY = 128 << 20
OVERHEAD = 192 << 20
"""what QEMU takes beside its guest's memory; measured under emulation, where translated code is much of it"""


@dataclass(frozen=True)
class ApiObject:
    namespace: str
    name: str
    uid: str
    resource_version: str = field(compare=False, default="")
    created: datetime = EPOCH
    deleted: datetime | None = None
    """when its deletion was asked for"""
    finalizers: tuple[str, ...] = ()
    owner: str = ""
    """UID of its controller"""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    def reference(self, resource: Resource) -> Json:
        """Of whom an Event speaks."""
        named = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        return {"apiVersion": resource.api_version, "kind": resource.kind, **named}


@dataclass(frozen=True)
class Volume:
    """A volume of a VM that is kept in a pvc; a DataVolume's pvc has the DataVolume's name."""

    pvc: str
    data_volume: bool


@dataclass(frozen=True)
class VM(ApiObject):
    """A VirtualMachine."""

    generation: int = 0
    strategy: str = "Halted"
    template: str = ""
    """hash of the VMI spec that it would be started with"""
    disks: tuple[str, ...] = ()
    """names in dataVolumeTemplates"""
    volumes: tuple[Volume, ...] = ()
    complete: bool = True
    """whether all hardware is decided"""
    faults: Pairs = ()
    status: Json = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class VMI(ApiObject):
    """A VirtualMachineInstance."""

    template: str = ""
    grace_seconds: float = GRACE_SECONDS
    selector: Pairs = ()
    volumes: tuple[Volume, ...] = ()
    interfaces: Pairs = ()
    """name and MAC address"""
    node_label: str = ""
    start_paused: bool = False
    memory: int = 0
    """bytes that the guest has"""
    faults: Pairs = ()
    status: Json = field(default_factory=dict, hash=False)

    @property
    def size(self) -> int:
        """Bytes that it takes of its node."""
        return self.memory + OVERHEAD

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "")

    @property
    def node(self) -> str:
        return str(self.status.get("nodeName") or "")

    @property
    def final(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def conditions(self) -> list[Json]:
        return list(self.status.get("conditions") or ())

    def reached(self, phase: str) -> datetime | None:
        """When it entered the phase, if it ever did."""
        for each in self.status.get("phaseTransitionTimestamps") or ():
            if each.get("phase") == phase:
                return times.read_time(each.get("phaseTransitionTimestamp"))
        return None


@dataclass(frozen=True)
class DataVolume(ApiObject):
    """A DataVolume."""

    source: Json = field(default_factory=dict, hash=False)
    pvc: Json = field(default_factory=dict, hash=False)
    status: Json = field(default_factory=dict, hash=False)

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "")

    @property
    def ready(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def failed(self) -> bool:
        """As KubeVirt sees it: given up, or its importer has stopped over an error."""
        running = find_condition(self.status.get("conditions") or (), "Running") or {}
        stopped = running.get("status") == "False" and running.get("reason") in ("Error", "ImagePullFailed")
        return self.phase == "Failed" or stopped


@dataclass(frozen=True)
class PVC(ApiObject):
    """A PersistentVolumeClaim."""

    phase: str = ""
    size: str = ""
    content: str = ""
    data_volume: str = ""
    """UID of the DataVolume that it is for"""


@dataclass(frozen=True)
class Migration(ApiObject):
    """A VirtualMachineInstanceMigration."""

    vmi: str = ""
    selector: Pairs = ()
    """added to the VMI's own"""
    evacuates: str = ""
    """the node that it is to bring the VMI away from"""
    status: Json = field(default_factory=dict, hash=False)

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "")

    @property
    def since(self) -> datetime | None:
        """Since when it is in its phase."""
        stamps = self.status.get("phaseTransitionTimestamps") or ()
        return times.read_time(stamps[-1].get("phaseTransitionTimestamp")) if stamps else None

    @property
    def final(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True)
class Node(ApiObject):
    labels: Pairs = ()
    ready: bool = True
    cordoned: bool = False
    taints: Pairs = ()
    """key and effect"""
    memory: int = 0
    """bytes that VMs may take"""
    lost: bool = False
    """declared lost by annotation"""
    unready_since: datetime | None = None

    @property
    def open(self) -> bool:
        """Whether VMs may be placed on it."""
        closed = any(effect in ("NoSchedule", "NoExecute") for _, effect in self.taints)
        return self.ready and not self.cordoned and not self.lost and not closed

    def offers(self, selector: Pairs) -> bool:
        return set(selector) <= set(self.labels)
