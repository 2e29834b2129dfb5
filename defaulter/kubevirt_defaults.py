"""What KubeVirt decides before it asks libvirt anything, decided earlier.

KubeVirt does most of this when a VM starts, on a copy that nobody keeps; libvirt alone would choose otherwise (IDE
disks, rtl8139). Pure: the same document gives the same answer, with no libvirt at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from apimachinery.quantity import to_int
from apimachinery.unstructured import Json, at, entries
from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.machine_types import UnavailablePolicy
from defaulter.vm_paths import VMLocation, places_on_root_complex
from defaulter.vmi_spec import video_type

MACPolicy = Literal["deterministic", "libvirt", "leave"]
InterfaceBinding = Literal["bridge", "masquerade", "leave"]
VideoPolicy = Literal["fill", "leave"]

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
    unavailable_machines: UnavailablePolicy = "warn"
    """what to do about a machine type that no node has"""
    macs: MACPolicy = "deterministic"
    video: VideoPolicy = "fill"
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
    machine = at(spec, "domain", "machine", "type")
    express = not isinstance(machine, str) or not machine or "q35" in machine or machine.startswith("virt")
    return express and spec.get("architecture") != "s390x"


def holds_addresses(spec: Json, location: VMLocation) -> bool:
    """Whether a spec can hold its PCI addresses at all.

    Not on s390x; not where KubeVirt numbers the root complex itself, without stepping round what is explicit; not
    beside disks or NICs that are conventional PCI, as transitional virtio is: libvirt puts those behind a bridge that
    the next define does not find in its place.
    """
    if spec.get("architecture") == "s390x" or places_on_root_complex(location):
        return False
    return not has_root_ports(spec) or not any(_conventional(spec))


def _conventional(spec: Json) -> Iterator[bool]:
    devices = at(spec, "domain", "devices")
    transitional = at(devices, "useVirtioTransitional") is True
    for _, interface in entries(devices, "interfaces"):
        if is_emulated(interface):
            model = interface.get("model") or "virtio"
            yield model in CONVENTIONAL_PCI_MODELS or (transitional and model == "virtio")
    for _, disk in entries(devices, "disks"):
        yield transitional and at(disk, "disk", "bus") == "virtio"


def with_input_device(spec: Json, location: VMLocation) -> Json:
    """The spec with the input device that KubeVirt gives a VM each time it starts, and writes into its instance only.
    Which one is the preference's choice where there is one; a mainframe has no USB for it."""
    devices = at(spec, "domain", "devices")
    wanted = location.is_vm and at(devices, "autoattachInputDevice") is True
    if not wanted or location.has_preference or at(devices, "inputs") or spec.get("architecture") == "s390x":
        return spec
    editor = DocumentEditor(spec)
    editor.replace(("domain", "devices", "inputs"), [{"name": "default-0", "bus": "usb", "type": "tablet"}])
    return editor.document


def add_devices(editor: DocumentEditor, location: VMLocation, cluster: ClusterConfig) -> None:
    """Gives a VM without a NIC the pod network's, and each volume without a device a disk."""
    if not location.has_preference:
        _network(editor, location.spec, cluster)
    disks = (*location.spec, "domain", "devices", "disks")
    for name in list(_volumes_without_device(editor.get(location.spec))):
        if not editor.get(disks):
            editor.replace(disks, [])
        editor.replace((*disks, len(editor.get(disks))), {"name": name, "disk": {}})


def set_kubevirt_defaults(editor: DocumentEditor, location: VMLocation, cluster: ClusterConfig) -> None:
    """Fills all that KubeVirt would fill by itself before the VM's domain is made."""
    add_devices(editor, location, cluster)
    spec = location.spec
    if not location.has_preference:
        editor.fill((*spec, "architecture"), cluster.architecture)
    architecture = editor.get((*spec, "architecture")) or cluster.architecture
    domain = (*spec, "domain")
    if not location.has_instancetype:
        _processors(editor, domain, architecture, cluster)
        editor.fill((*domain, "memory", "guest"), _memory(editor.get(domain)))
    if not location.has_preference:
        editor.fill((*domain, "features", "acpi", "enabled"), architecture != "s390x")
    _firmware(editor, domain, architecture)
    _spinlocks(editor, domain)
    _disks(editor, spec, architecture, location.has_preference)
    _devices(editor, (*domain, "devices"), architecture, location.has_preference)
    if (
        cluster.video == "fill"
        and editor.get((*domain, "devices", "autoattachGraphicsDevice"))
        and not location.has_preference
    ):
        editor.fill((*domain, "devices", "video", "type"), video_type(editor.get(spec)))


def _processors(editor: DocumentEditor, domain: Path, architecture: str, cluster: ClusterConfig) -> None:
    cpu = (*domain, "cpu")
    editor.fill((*cpu, "model"), "host-passthrough" if architecture == "arm64" else cluster.cpu_model)
    # Sockets beside cores or threads would make virt-api reserve four times as many: another guest.
    if all(is_unset(editor.get((*cpu, part))) for part in ("cores", "threads", "sockets")):
        wanted = _requested(editor.get(domain), "cpu")
        editor.fill((*cpu, "sockets"), wanted or 1)
    for part in ("cores", "threads"):
        editor.fill((*cpu, part), 1)


def _requested(domain: Any, resource: str) -> int | None:
    for source in ("limits", "requests"):
        value = to_int(at(domain, "resources", source, resource))
        if value and value < 2**31:
            return value
    return None


def _memory(domain: Any) -> Any:
    """The quantity as the user wrote it, so that nothing is rounded on the way."""
    sources = (
        ("resources", "requests", "memory"),
        ("resources", "limits", "memory"),
        ("memory", "hugepages", "pageSize"),
    )
    return next((value for path in sources if to_int(value := at(domain, *path))), None)


def _network(editor: DocumentEditor, spec: Path, cluster: ClusterConfig) -> None:
    devices = editor.get((*spec, "domain", "devices"))
    if at(devices, "autoattachPodInterface") is False or cluster.binding == "leave":
        return
    if not at(devices, "interfaces") and not editor.get((*spec, "networks")):
        editor.replace((*spec, "domain", "devices", "interfaces"), [{"name": "default", cluster.binding: {}}])
        editor.replace((*spec, "networks"), [{"name": "default", "pod": {}}])


def _firmware(editor: DocumentEditor, domain: Path, architecture: str) -> None:
    bootloader = (*domain, "firmware", "bootloader")
    if architecture == "arm64" and editor.get(bootloader) is None:
        editor.fill((*bootloader, "efi", "secureBoot"), False)
    if isinstance(editor.get((*bootloader, "efi")), dict):
        editor.fill((*bootloader, "efi", "secureBoot"), architecture != "arm64")


def _spinlocks(editor: DocumentEditor, domain: Path) -> None:
    spinlocks = (*domain, "features", "hyperv", "spinlocks")
    given = editor.get(spinlocks)
    if isinstance(given, dict) and given.get("enabled") is not False:
        editor.fill((*spinlocks, "spinlocks"), 4096)


def _disks(editor: DocumentEditor, spec: Path, architecture: str, has_preference: bool) -> None:
    disks = (*spec, "domain", "devices", "disks")
    bus = "sata" if architecture == "amd64" else "virtio"
    for index, disk in entries(editor.get(disks)):
        kind = device_kind(disk) or "disk"
        place = (*disks, index, kind)
        if device_kind(disk) is None and all(disk.get(other) is None for other in DISK_KINDS):
            editor.fill(place, {})
        if not has_preference:
            editor.fill((*place, "bus"), bus)
        if kind == "cdrom":
            editor.fill((*place, "readonly"), True)
            editor.fill((*place, "tray"), "closed")


def _volumes_without_device(spec: Json) -> Iterator[str]:
    devices = at(spec, "domain", "devices")
    named = {d.get("name") for key in ("disks", "filesystems") for _, d in entries(devices, key)}
    for _, volume in entries(spec.get("volumes")):
        name = volume.get("name")
        if isinstance(name, str) and name not in named and "memoryDump" not in volume:
            named.add(name)
            yield name


def _devices(editor: DocumentEditor, devices: Path, architecture: str, has_preference: bool) -> None:
    if not has_preference:
        for index, interface in entries(editor.get((*devices, "interfaces"))):
            if is_emulated(interface):
                editor.fill((*devices, "interfaces", index, "model"), "virtio")
        for index, _ in entries(editor.get((*devices, "inputs"))):
            editor.fill((*devices, "inputs", index, "bus"), "usb")
            editor.fill((*devices, "inputs", index, "type"), "tablet")
        for part in ("GraphicsDevice", "SerialConsole", "MemBalloon"):
            editor.fill((*devices, f"autoattach{part}"), True)
    if isinstance(editor.get((*devices, "watchdog")), dict) and architecture != "arm64":
        model = "diag288" if architecture == "s390x" else "i6300esb"
        editor.fill((*devices, "watchdog", model, "action"), "reset")
    if isinstance(editor.get((*devices, "sound")), dict):
        editor.fill((*devices, "sound", "model"), "ich9")
