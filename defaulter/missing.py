"""What a document still leaves to chance: the fields that defaulting would fill, found by looking at it alone.

The same answer decides what `complete` fills and what others wait for, so the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]
Macs = Literal["deterministic", "libvirt", "leave"]

OPT_OUT = "poolhouse.dev/defaulting"
ROOT_COMPLEX = "kubevirt.io/placePCIDevicesOnRootComplex"

DEVICE_KINDS = ("disk", "cdrom", "lun")
BINDINGS_WITHOUT_NIC = ("sriov",)
CONVENTIONAL = ("e1000", "rtl8139", "pcnet", "ne2k_pci")


@dataclass(frozen=True)
class Place:
    """Where a kind keeps the VM inside it."""

    instance: tuple[str, ...]
    """path of what becomes a VirtualMachineInstance: the object that holds `metadata` and `spec`"""
    shared: bool
    """a template that many VMs share may be given addresses, never an identity"""
    machine: tuple[str, ...] | None = None
    """path of the VirtualMachine's object, where instance type and preference are named"""


PLACES: Mapping[str, Place] = {
    "VirtualMachine": Place(("spec", "template"), shared=False, machine=()),
    "VirtualMachineInstance": Place((), shared=False),
    "VirtualMachineInstanceReplicaSet": Place(("spec", "template"), shared=True),
    "VirtualMachinePool": Place(
        ("spec", "virtualMachineTemplate", "spec", "template"), shared=True, machine=("spec", "virtualMachineTemplate")
    ),
    "VirtualMachineWarmPool": Place(
        ("spec", "template", "spec", "template"), shared=True, machine=("spec", "template")
    ),
}


def inside(value: Any, *path: str) -> Any:
    """The value at a path of keys, None where anything on the way is absent or no object."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def objects(value: Any) -> Iterator[tuple[int, Json]]:
    """The objects of a list with their index, passing over what is none."""
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield index, item


def opted_out(document: Json) -> bool:
    return bool(inside(document, "metadata", "labels", OPT_OUT) == "disabled")


def canonical(machine: str) -> bool:
    """A versioned machine type means the same hardware for ever, an alias what the next QEMU makes of it."""
    return any(part[:1].isdigit() or part.startswith("rhel") for part in machine.split("-")[1:])


def device_kind(disk: Json) -> str | None:
    """disk, cdrom or lun; None where the spec leaves it open (KubeVirt then takes it for a disk)."""
    return next((kind for kind in DEVICE_KINDS if isinstance(disk.get(kind), dict)), None)


def has_nic(interface: Json) -> bool:
    """False for what is no emulated NIC: passed-through functions, and bindings by plugins that bring their own."""
    return not any(binding in interface for binding in BINDINGS_WITHOUT_NIC)


def missing(document: Json, *, macs: Macs = "deterministic") -> list[str]:
    """Paths in the document that defaulting would fill. Empty: complete, opted out, or no kind that has a VM in it."""
    place = PLACES.get(str(document.get("kind")))
    if place is None or opted_out(document):
        return []
    instance = inside(document, *place.instance)
    spec = inside(instance, "spec")
    if not isinstance(spec, dict):
        return []
    machine = inside(document, *place.machine, "spec") if place.machine is not None else None
    sized = inside(machine, "instancetype") is not None
    preferred = inside(machine, "preference") is not None
    prefix = ".".join((*place.instance, "spec", "domain", ""))
    annotations = inside(instance, "metadata", "annotations")
    found = _missing(spec, annotations if isinstance(annotations, dict) else {}, place.shared, sized, preferred, macs)
    return [prefix + path for path in found]


def _missing(spec: Json, annotations: Json, shared: bool, sized: bool, preferred: bool, macs: Macs) -> Iterator[str]:
    domain = spec.get("domain")
    domain = domain if isinstance(domain, dict) else {}
    kind = inside(domain, "machine", "type")
    if not (isinstance(kind, str) and canonical(kind)) and not (preferred and not kind):
        yield "machine.type"
    if not shared:
        yield from (f"firmware.{key}" for key in ("uuid", "serial") if not inside(domain, "firmware", key))
    if not sized:
        yield from (f"cpu.{key}" for key in _topology(domain.get("cpu")))
    addressed = addresses_fit(spec, annotations)
    for index, disk in objects(inside(domain, "devices", "disks")):
        yield from (f"devices.disks[{index}].{path}" for path in _disk(disk, preferred, addressed))
    for index, interface in objects(inside(domain, "devices", "interfaces")):
        if has_nic(interface):
            fields = _interface(interface, preferred, addressed, shared or macs == "leave")
            yield from (f"devices.interfaces[{index}].{path}" for path in fields)


def _topology(cpu: Any) -> Iterator[str]:
    given = {key for key in ("cores", "threads", "sockets") if inside(cpu, key)}
    yield from (key for key in ("cores", "threads") if key not in given)
    # Sockets beside cores or threads make virt-api reserve four times as many: another guest.
    if not given:
        yield "sockets"


def _disk(disk: Json, preferred: bool, addressed: bool) -> Iterator[str]:
    kind = device_kind(disk)
    bus = inside(disk, kind or "disk", "bus")
    if not bus and not preferred:
        yield f"{kind or 'disk'}.bus"
    if addressed and kind == "disk" and bus == "virtio" and not disk["disk"].get("pciAddress"):
        yield "disk.pciAddress"


def _interface(interface: Json, preferred: bool, addressed: bool, anonymous: bool) -> Iterator[str]:
    if not interface.get("model") and not preferred:
        yield "model"
    if not interface.get("macAddress") and not anonymous:
        yield "macAddress"
    if addressed and not interface.get("pciAddress") and (interface.get("model") or not preferred):
        yield "pciAddress"


def addresses_fit(spec: Json, annotations: Json) -> bool:
    """Whether a spec can hold its PCI addresses at all.

    Not on s390x; not where KubeVirt numbers the root complex itself, without stepping round what is explicit; not
    beside a conventional PCI NIC, which libvirt puts behind a bridge that the next define does not find.
    """
    if spec.get("architecture") == "s390x" or annotations.get(ROOT_COMPLEX) == "true":
        return False
    interfaces = objects(inside(spec, "domain", "devices", "interfaces"))
    return not any(interface.get("model") in CONVENTIONAL for _, interface in interfaces)
