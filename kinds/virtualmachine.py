"""KubeVirt's VirtualMachine as far as we look into it.

Types and names are KubeVirt's and never narrower than its own, every object keeps what is not declared: a spec of a
newer KubeVirt passes untouched. Used for schemas only; the values stay plain dicts, because they are copied on.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kinds.model import FreeForm, Int64, OpenModel, Quantity, expected

RUN_STRATEGIES = ("Always", "Halted", "Manual", "RerunOnFailure", "Once", "WaitAsReceiver")
RunStrategy = Literal["Always", "Halted", "Manual", "RerunOnFailure", "Once", "WaitAsReceiver"]


class ObjectMeta(OpenModel):
    """Metadata of an object that is made from a template."""

    labels: dict[str, str] | None = None
    """Labels that the object gets."""
    annotations: dict[str, str] | None = None
    """Annotations that the object gets."""


class DiskTarget(OpenModel):
    """How the guest sees a disk."""

    bus: str | None = None
    """Bus that the disk is attached to: virtio, sata, scsi or usb. Decided at creation when left out."""
    pci_address: str | None = None
    """PCI address of a virtio disk, `0000:81:01.0`. Decided at creation when left out."""


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
    """Position among the devices to boot from, from 1."""
    serial: str | None = None
    """Serial number that the guest reads."""


class Interface(OpenModel):
    """A network interface of the guest."""

    name: str
    """Name of the network that the interface is connected to."""
    model: str | None = None
    """Model of the interface: virtio, e1000e, ... Decided at creation when left out."""
    mac_address: str | None = None
    """MAC address that the guest sees. Decided at creation when left out."""
    pci_address: str | None = None
    """PCI address of the interface. Decided at creation when left out."""


class Devices(OpenModel):
    """Devices of the guest."""

    disks: list[Disk] | None = None
    """Disks, CD-ROMs and LUNs. Each names a volume."""
    interfaces: list[Interface] | None = None
    """Network interfaces. Each names a network."""


class Machine(OpenModel):
    """The guest's board."""

    type: str | None = None
    """Machine type, `pc-q35-7.2`. Decided at creation when left out, an alias such as `q35` made exact."""


class Firmware(OpenModel):
    """The guest's firmware."""

    uuid: str | None = None
    """UUID that the guest's firmware reports. Decided at creation when left out."""
    serial: str | None = None
    """Serial number that the guest's firmware reports. Decided at creation when left out."""


class Cpu(OpenModel):
    """The guest's processors."""

    cores: Annotated[Int64, Field(ge=0)] | None = None
    """Cores of each socket."""
    sockets: Annotated[Int64, Field(ge=0)] | None = None
    """Sockets of the board."""
    threads: Annotated[Int64, Field(ge=0)] | None = None
    """Threads of each core."""
    model: str | None = None
    """Processor model, `host-model` when left out."""


class Memory(OpenModel):
    """The guest's memory."""

    guest: Quantity | None = None
    """Memory that the guest sees."""


class Domain(OpenModel):
    """The guest's hardware."""

    devices: Devices
    """Disks, interfaces and other devices."""
    machine: Machine | None = None
    """The board."""
    firmware: Firmware | None = None
    """What the guest's firmware reports and how it boots."""
    cpu: Cpu | None = None
    """Processors."""
    memory: Memory | None = None
    """Memory."""
    resources: FreeForm | None = None
    """What the VM requests of its node and may use there at most."""


class DataVolumeSource(OpenModel):
    """A DataVolume as a volume."""

    name: str
    """Name of the DataVolume."""


class PersistentVolumeClaimSource(OpenModel):
    """A PersistentVolumeClaim as a volume."""

    claim_name: str
    """Name of the PersistentVolumeClaim."""


class Volume(OpenModel):
    """Storage or data that a disk shows to the guest."""

    name: str
    """Name that disks refer to."""
    data_volume: DataVolumeSource | None = None
    """A DataVolume, made by a dataVolumeTemplate or existing."""
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
    """What a running VM consists of."""

    domain: Domain
    """The guest's hardware."""
    volumes: list[Volume] | None = None
    """Volumes that disks show to the guest."""
    networks: list[Network] | None = None
    """Networks that interfaces connect to."""
    termination_grace_period_seconds: Annotated[Int64, Field(ge=0)] | None = None
    """Seconds between asking the guest to shut down and switching it off."""
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


class NamedMeta(OpenModel):
    """Metadata of an object that is made for one VM."""

    name: str
    """Name of the object."""
    labels: dict[str, str] | None = None
    """Labels that the object gets."""
    annotations: dict[str, str] | None = None
    """Annotations that the object gets."""


class DataVolumeTemplate(OpenModel):
    """Template of a DataVolume that is made with the VM and belongs to it."""

    metadata: NamedMeta
    """Name, labels and annotations of the DataVolume."""
    spec: FreeForm
    """The spec of the DataVolume: its source and its size."""


class InstancetypeMatcher(OpenModel):
    """Refers to an instance type or a preference."""

    name: str | None = None
    """Name of the instance type or preference."""
    kind: str | None = None
    """Its kind; the cluster-wide one when left out."""


class VMSpec(OpenModel):
    """A VirtualMachine's spec."""

    running: bool | None = None
    """Whether the VM should run. Either this or `runStrategy`."""
    run_strategy: RunStrategy | None = None
    """When the VM should run. Either this or `running`."""
    data_volume_templates: list[DataVolumeTemplate] | None = None
    """DataVolumes that are made with the VM and deleted with it."""
    instancetype: InstancetypeMatcher | None = None
    """Instance type that gives the VM its size."""
    preference: InstancetypeMatcher | None = None
    """Preference that decides what the spec leaves out."""
    template: VMITemplate
    """Template of the VirtualMachineInstance that runs the VM."""


class VMTemplate(OpenModel):
    """Template of VirtualMachines."""

    model_config = ConfigDict(json_schema_extra=expected("an object with the spec of a VirtualMachine"))

    metadata: ObjectMeta | None = None
    """Labels and annotations that each VM gets."""
    spec: VMSpec
    """The spec of each VM, as it would be in a VirtualMachine."""
