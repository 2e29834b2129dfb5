"""The fields of KubeVirt's VirtualMachine that Poolhouse validates.

Types and names are KubeVirt's. Every object keeps undeclared fields, so a spec for a newer KubeVirt is valid.
The models are only for schemas and validation. Templates stay dicts, because controllers copy them into VMs.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from poolhouse.api.kinds.model import FreeForm, Int64, OpenModel, Quantity, expected

RUN_STRATEGIES = ("Always", "Halted", "Manual", "RerunOnFailure", "Once", "WaitAsReceiver")
RunStrategy = Literal["Always", "Halted", "Manual", "RerunOnFailure", "Once", "WaitAsReceiver"]


class ObjectMeta(OpenModel):
    """Metadata of an object that is created from a template."""

    labels: dict[str, str] | None = None
    """Labels that the object gets."""
    annotations: dict[str, str] | None = None
    """Annotations that the object gets."""


class DiskTarget(OpenModel):
    """Device that the guest sees."""

    bus: str | None = None
    """Bus that the disk is attached to: virtio, sata, scsi or usb. Set at creation when left out."""
    pci_address: str | None = None
    """PCI address of a virtio disk, `0000:81:01.0`. Set at creation when left out."""


class Disk(OpenModel):
    """A disk of the guest."""

    name: str
    """Name of the volume behind the disk."""
    disk: DiskTarget | None = None
    """Attach the volume as a disk."""
    cdrom: DiskTarget | None = None
    """Attach the volume as a CD-ROM."""
    lun: DiskTarget | None = None
    """Attach the volume as a LUN."""
    boot_order: Int64 | None = None
    """Position in the boot order, starting with 1."""
    serial: str | None = None
    """Serial number that the guest reads."""


class Interface(OpenModel):
    """A network interface of the guest."""

    name: str
    """Name of the network that the interface is connected to."""
    model: str | None = None
    """Model of the interface: virtio, e1000e, ... Set at creation when left out."""
    mac_address: str | None = None
    """MAC address that the guest sees. Set at creation when left out."""
    pci_address: str | None = None
    """PCI address of the interface. Set at creation when left out."""


class Devices(OpenModel):
    """Devices of the guest."""

    disks: list[Disk] | None = None
    """Disks, CD-ROMs and LUNs. The name of each must be the name of a volume."""
    interfaces: list[Interface] | None = None
    """Network interfaces. The name of each must be the name of a network."""


class Machine(OpenModel):
    """The guest's board."""

    type: str | None = None
    """Machine type, `pc-q35-7.2`. Set at creation when left out; an alias such as `q35` becomes an exact version."""


class Firmware(OpenModel):
    """The guest's firmware."""

    uuid: str | None = None
    """UUID that the guest's firmware reports. Set at creation when left out."""
    serial: str | None = None
    """Serial number that the guest's firmware reports. Set at creation when left out."""


class Cpu(OpenModel):
    """The guest's processors."""

    cores: Annotated[Int64, Field(ge=0)] | None = None
    """Cores of each socket."""
    sockets: Annotated[Int64, Field(ge=0)] | None = None
    """Sockets of the board."""
    threads: Annotated[Int64, Field(ge=0)] | None = None
    """Threads of each core."""
    model: str | None = None
    """Processor model. Defaults to `host-model`."""


class Memory(OpenModel):
    """The guest's memory."""

    guest: Quantity | None = None
    """Memory that the guest sees."""


class Domain(OpenModel):
    """The guest's hardware."""

    devices: Devices
    """Disks, interfaces and other devices."""
    machine: Machine | None = None
    """Machine type of the guest."""
    firmware: Firmware | None = None
    """Firmware of the guest."""
    cpu: Cpu | None = None
    """Processors."""
    memory: Memory | None = None
    """Memory."""
    resources: FreeForm | None = None
    """Resource requests and limits of the VM."""


class DataVolumeSource(OpenModel):
    """A DataVolume as a volume."""

    name: str
    """Name of the DataVolume."""


class PersistentVolumeClaimSource(OpenModel):
    """A PersistentVolumeClaim as a volume."""

    claim_name: str
    """Name of the PersistentVolumeClaim."""


class Volume(OpenModel):
    """Storage or data behind a disk of the guest."""

    name: str
    """Name that disks refer to."""
    data_volume: DataVolumeSource | None = None
    """A DataVolume of a dataVolumeTemplate, or an existing DataVolume."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """An existing PersistentVolumeClaim."""


class Network(OpenModel):
    """A network that interfaces connect to."""

    name: str
    """Name that interfaces refer to."""
    pod: FreeForm | None = None
    """The cluster's default network."""
    multus: FreeForm | None = None
    """A network of Multus."""


class VMISpec(OpenModel):
    """Spec of a VirtualMachineInstance."""

    domain: Domain
    """The guest's hardware."""
    volumes: list[Volume] | None = None
    """Volumes behind the disks of the guest."""
    networks: list[Network] | None = None
    """Networks that interfaces connect to."""
    termination_grace_period_seconds: Annotated[Int64, Field(ge=0)] | None = None
    """Seconds between the shutdown request to the guest and its forced stop."""
    eviction_strategy: str | None = None
    """What happens when the node is drained: None, LiveMigrate, LiveMigrateIfPossible or External."""
    node_selector: dict[str, str] | None = None
    """Labels that a node must have to run the VM."""
    liveness_probe: FreeForm | None = None
    """Probe whose failure restarts the VM."""
    readiness_probe: FreeForm | None = None
    """Probe whose failure makes the VM not ready."""


class VMITemplate(OpenModel):
    """Template of the VirtualMachineInstance that runs the VM."""

    metadata: ObjectMeta | None = None
    """Labels and annotations that the VirtualMachineInstance gets."""
    spec: VMISpec
    """The spec of the VirtualMachineInstance."""


class NamedMeta(ObjectMeta):
    """Metadata of an object that is created for one VM."""

    name: str
    """Name of the object."""


class DataVolumeTemplate(OpenModel):
    """Template of a DataVolume that is created with the VM and belongs to it."""

    metadata: NamedMeta
    """Name, labels and annotations of the DataVolume."""
    spec: FreeForm
    """The spec of the DataVolume: its source and its size."""


class InstancetypeMatcher(OpenModel):
    """Refers to an instance type or a preference."""

    name: str | None = None
    """Name of the instance type or preference."""
    kind: str | None = None
    """Kind of the object. Defaults to the cluster-wide kind."""


class VMSpec(OpenModel):
    """A VirtualMachine's spec."""

    running: bool | None = None
    """Whether the VM should run. Exclusive with `runStrategy`."""
    run_strategy: RunStrategy | None = None
    """When the VM should run. Exclusive with `running`."""
    data_volume_templates: list[DataVolumeTemplate] | None = None
    """DataVolumes that are created and deleted with the VM."""
    instancetype: InstancetypeMatcher | None = None
    """Instance type, which sets CPU and memory."""
    preference: InstancetypeMatcher | None = None
    """Preference, which sets fields that the spec leaves out."""
    template: VMITemplate
    """Template of the VirtualMachineInstance that runs the VM."""


class VMTemplate(OpenModel):
    """Template of VirtualMachines."""

    model_config = ConfigDict(json_schema_extra=expected("an object with the spec of a VirtualMachine"))

    metadata: ObjectMeta | None = None
    """Labels and annotations that each VM gets."""
    spec: VMSpec
    """The spec of each VM, as it would be in a VirtualMachine."""
