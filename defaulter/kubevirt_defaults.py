"""What KubeVirt decides before it asks libvirt anything, decided earlier.

KubeVirt does most of this when a VM starts, on a copy that nobody keeps; libvirt alone would choose otherwise (IDE
disks, rtl8139). Pure: the same document gives the same answer, with no libvirt at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from defaulter.codecs import quantity
from defaulter.json_paths import DocumentEditor, Json, Path, get, is_unset, objects
from defaulter.machine_types import UnavailablePolicy
from defaulter.vm_paths import VMLocation, on_root_complex
from defaulter.vmi_spec import video_type

MACPolicy = Literal["deterministic", "libvirt", "leave"]
InterfaceBinding = Literal["bridge", "masquerade", "leave"]
Video = Literal["fill", "leave"]

DISK_KINDS = ("disk", "cdrom", "lun")
CONVENTIONAL_PCI_MODELS = ("e1000", "rtl8139", "pcnet", "ne2k_pci")


@dataclass(frozen=True)
class ClusterConfig:
    """What a cluster's KubeVirt is configured to, as far as it shows in a guest."""

    architecture: str = "amd64"
    binding: InterfaceBinding = "bridge"
    """of the NIC that a VM gets which names none"""
    cpu_model: str = "host-model"
    machines: Mapping[str, str] = field(default_factory=dict)
    """what an alias stands for on the nodes, where that is not what our own QEMU takes it for"""
    unoffered: UnavailablePolicy = "warn"
    """what to do about a machine type that no node has"""
    macs: MACPolicy = "deterministic"
    video: Video = "fill"
    """whether the display adapter is written down: KubeVirt before 1.7 refuses a VM that names one"""
    record: bool = False
    """whether what a spec cannot hold is recorded beside it"""


def device_kind(disk: Json) -> str | None:
    return next((kind for kind in DISK_KINDS if isinstance(disk.get(kind), dict)), None)


def is_emulated(interface: Json) -> bool:
    """Whether a NIC is emulated for it: not for passed-through functions, nor for one that is being unplugged."""
    return "sriov" not in interface and interface.get("state") != "absent"


def has_root_ports(spec: Json) -> bool:
    """Whether KubeVirt adds root ports: on PCI Express machines, which are all that it supports but mainframes."""
    machine = get(spec, ("domain", "machine", "type"))
    express = not isinstance(machine, str) or not machine or "q35" in machine or machine.startswith("virt")
    return express and spec.get("architecture") != "s390x"


def holds_addresses(spec: Json, where: VMLocation) -> bool:
    """Whether a spec can hold its PCI addresses at all.

    Not on s390x; not where KubeVirt numbers the root complex itself, without stepping round what is explicit; not
    beside disks or NICs that are conventional PCI, as transitional virtio is: libvirt puts those behind a bridge that
    the next define does not find in its place.
    """
    if spec.get("architecture") == "s390x" or on_root_complex(where):
        return False
    return not has_root_ports(spec) or not any(_conventional(spec))


def _conventional(spec: Json) -> Iterator[bool]:
    devices = get(spec, ("domain", "devices"))
    transitional = get(devices, ("useVirtioTransitional",)) is True
    for _, interface in objects(get(devices, ("interfaces",))):
        if is_emulated(interface):
            model = interface.get("model") or "virtio"
            yield model in CONVENTIONAL_PCI_MODELS or (transitional and model == "virtio")
    for _, disk in objects(get(devices, ("disks",))):
        yield transitional and get(disk, ("disk", "bus")) == "virtio"


def with_input_device(spec: Json, where: VMLocation) -> Json:
    """The spec with the input device that KubeVirt gives a VM each time it starts, and writes into its instance only.
    Which one is the preference's choice where there is one; a mainframe has no USB for it."""
    devices = get(spec, ("domain", "devices"))
    wanted = where.machine and get(devices, ("autoattachInputDevice",)) is True
    if not wanted or where.preferred or get(devices, ("inputs",)) or spec.get("architecture") == "s390x":
        return spec
    draft = DocumentEditor(spec)
    draft.replace(("domain", "devices", "inputs"), [{"name": "default-0", "bus": "usb", "type": "tablet"}])
    return draft.document


def add_devices(draft: DocumentEditor, where: VMLocation, cluster: ClusterConfig) -> None:
    """Gives a VM without a NIC the pod network's, and each volume without a device a disk."""
    if not where.preferred:
        _network(draft, where.spec, cluster)
    disks = (*where.spec, "domain", "devices", "disks")
    for name in list(_volumes_without_device(draft.get(where.spec))):
        if not draft.get(disks):
            draft.replace(disks, [])
        draft.replace((*disks, len(draft.get(disks))), {"name": name, "disk": {}})


def set_kubevirt_defaults(draft: DocumentEditor, where: VMLocation, cluster: ClusterConfig) -> None:
    """Fills all that KubeVirt would fill by itself before the VM's domain is made."""
    add_devices(draft, where, cluster)
    spec = where.spec
    if not where.preferred:
        draft.fill((*spec, "architecture"), cluster.architecture)
    architecture = draft.get((*spec, "architecture")) or cluster.architecture
    domain = (*spec, "domain")
    if not where.sized:
        _processors(draft, domain, architecture, cluster)
        draft.fill((*domain, "memory", "guest"), _memory(draft.get(domain)))
    if not where.preferred:
        draft.fill((*domain, "features", "acpi", "enabled"), architecture != "s390x")
    _firmware(draft, domain, architecture)
    _spinlocks(draft, domain)
    _disks(draft, spec, architecture, where.preferred)
    _devices(draft, (*domain, "devices"), architecture, where.preferred)
    if cluster.video == "fill" and draft.get((*domain, "devices", "autoattachGraphicsDevice")) and not where.preferred:
        draft.fill((*domain, "devices", "video", "type"), video_type(draft.get(spec)))


def _processors(draft: DocumentEditor, domain: Path, architecture: str, cluster: ClusterConfig) -> None:
    cpu = (*domain, "cpu")
    draft.fill((*cpu, "model"), "host-passthrough" if architecture == "arm64" else cluster.cpu_model)
    # Sockets beside cores or threads would make virt-api reserve four times as many: another guest.
    if all(is_unset(draft.get((*cpu, part))) for part in ("cores", "threads", "sockets")):
        wanted = _requested(draft.get(domain), "cpu")
        draft.fill((*cpu, "sockets"), wanted or 1)
    for part in ("cores", "threads"):
        draft.fill((*cpu, part), 1)


def _requested(domain: Any, resource: str) -> int | None:
    for source in ("limits", "requests"):
        value = quantity(get(domain, ("resources", source, resource)))
        if value:
            return value
    return None


def _memory(domain: Any) -> Any:
    """The quantity as the user wrote it, so that nothing is rounded on the way."""
    sources = (
        ("resources", "requests", "memory"),
        ("resources", "limits", "memory"),
        ("memory", "hugepages", "pageSize"),
    )
    return next((value for path in sources if quantity(value := get(domain, path))), None)


def _network(draft: DocumentEditor, spec: Path, cluster: ClusterConfig) -> None:
    devices = draft.get((*spec, "domain", "devices"))
    if get(devices, ("autoattachPodInterface",)) is False or cluster.binding == "leave":
        return
    if not get(devices, ("interfaces",)) and not draft.get((*spec, "networks")):
        draft.replace((*spec, "domain", "devices", "interfaces"), [{"name": "default", cluster.binding: {}}])
        draft.replace((*spec, "networks"), [{"name": "default", "pod": {}}])


def _firmware(draft: DocumentEditor, domain: Path, architecture: str) -> None:
    bootloader = (*domain, "firmware", "bootloader")
    if architecture == "arm64" and draft.get(bootloader) is None:
        draft.fill((*bootloader, "efi", "secureBoot"), False)
    if isinstance(draft.get((*bootloader, "efi")), dict):
        draft.fill((*bootloader, "efi", "secureBoot"), architecture != "arm64")


def _spinlocks(draft: DocumentEditor, domain: Path) -> None:
    spinlocks = (*domain, "features", "hyperv", "spinlocks")
    given = draft.get(spinlocks)
    if isinstance(given, dict) and given.get("enabled") is not False:
        draft.fill((*spinlocks, "spinlocks"), 4096)


def _disks(draft: DocumentEditor, spec: Path, architecture: str, preferred: bool) -> None:
    disks = (*spec, "domain", "devices", "disks")
    bus = "sata" if architecture == "amd64" else "virtio"
    for index, disk in objects(draft.get(disks)):
        kind = device_kind(disk) or "disk"
        place = (*disks, index, kind)
        if device_kind(disk) is None and all(disk.get(other) is None for other in DISK_KINDS):
            draft.fill(place, {})
        if not preferred:
            draft.fill((*place, "bus"), bus)
        if kind == "cdrom":
            draft.fill((*place, "readonly"), True)
            draft.fill((*place, "tray"), "closed")


def _volumes_without_device(spec: Json) -> Iterator[str]:
    devices = get(spec, ("domain", "devices"))
    named = {d.get("name") for key in ("disks", "filesystems") for _, d in objects(get(devices, (key,)))}
    for _, volume in objects(spec.get("volumes")):
        name = volume.get("name")
        if isinstance(name, str) and name not in named and "memoryDump" not in volume:
            named.add(name)
            yield name


def _devices(draft: DocumentEditor, devices: Path, architecture: str, preferred: bool) -> None:
    if not preferred:
        for index, interface in objects(draft.get((*devices, "interfaces"))):
            if is_emulated(interface):
                draft.fill((*devices, "interfaces", index, "model"), "virtio")
        for index, _ in objects(draft.get((*devices, "inputs"))):
            draft.fill((*devices, "inputs", index, "bus"), "usb")
            draft.fill((*devices, "inputs", index, "type"), "tablet")
        for part in ("GraphicsDevice", "SerialConsole", "MemBalloon"):
            draft.fill((*devices, f"autoattach{part}"), True)
    if isinstance(draft.get((*devices, "watchdog")), dict) and architecture != "arm64":
        model = "diag288" if architecture == "s390x" else "i6300esb"
        draft.fill((*devices, "watchdog", model, "action"), "reset")
    if isinstance(draft.get((*devices, "sound")), dict):
        draft.fill((*devices, "sound", "model"), "ich9")
