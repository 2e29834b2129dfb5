"""Builds the libvirt domain XML of a VMI. The XML contains the hardware of the spec unchanged."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from lxml import etree

from defaulter.contract import HARDWARE_ANNOTATION, InvalidHardwareRecord, restore_hardware
from defaulter.pci_addresses import assign_pci_addresses, hotplug_ports
from poolhouse.api.apimachinery import mac_address
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kubevirt.live_devices import ABSENT
from poolhouse.api.kubevirt.versions import TERMINATE
from poolhouse.stack.engine.fault_injection import NO_FAULTS, Faults
from poolhouse.stack.engine.objects import guest_memory
from poolhouse.stack.engine.qemu.guest_image import GuestImage, command_line
from poolhouse.stack.engine.resources import disk_kind

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
KUBEVIRT = "http://kubevirt.io"
PCI = re.compile(r"^([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])$")
MEMORY_BACKEND = "guest.ram"
BUSES = {"virtio": "vd", "scsi": "sd", "sata": "sd", "usb": "sd"}


@dataclass(frozen=True)
class VolumeFile:
    """The file of a volume."""

    path: Path
    format: str = "qcow2"


@dataclass(frozen=True)
class DomainContext:
    """Values of the domain XML that are not in the VMI's spec."""

    marker: str
    """the stack's directory; `down` finds the stack's QEMU processes by this value"""
    console: Path
    kvm: bool = False
    guest: GuestImage | None = None
    """the built-in Linux; None if the VM boots from a disk"""
    faults: Faults = NO_FAULTS
    """what the built-in Linux does to itself"""


class InvalidDomain(Exception):
    """The spec has a value that cannot be written as domain XML."""


def domain_xml(vmi: Json, files: Mapping[str, VolumeFile], host: DomainContext) -> str:
    """Returns the domain XML. `files` are the files of the VMI's volumes, by volume name."""
    metadata, spec = vmi["metadata"], vmi["spec"]
    domain = spec.get("domain") or {}
    root = etree.Element("domain", type="kvm" if host.kvm else "qemu", nsmap={"qemu": QEMU})
    _add(root, "name", text=domain_name(metadata))
    # The engine finds the domain by the VMI's UID. `_smbios` passes the firmware UUID to the guest.
    _add(root, "uuid", text=metadata["uid"])
    _add(root, "memory", text=str(memory_of(domain)), unit="b")
    _cpu(root, domain.get("cpu") or {}, host)
    _os(root, vmi, domain, host)
    features = _add(root, "features")
    if at(domain, "features", "acpi", "enabled") is not False:
        _add(features, "acpi")
    _add(features, "apic")
    _add(root, "clock", offset="utc")
    on_reboot = "destroy" if domain.get("rebootPolicy") == TERMINATE else "restart"
    for event, answer in (("on_poweroff", "destroy"), ("on_reboot", on_reboot), ("on_crash", "destroy")):
        _add(root, event, text=answer)
    _devices(root, domain.get("devices") or {}, files, host)
    _video(root.find("devices"), vmi["spec"])
    _qemu_commandline(root, domain, host)
    return str(etree.tostring(root, encoding="unicode", pretty_print=True))


def with_recorded_hardware(vmi: Json, domain: str) -> str:
    """Adds the recorded hardware of the VM to the domain XML, as the sidecar hook does on a cluster. Raises
    InvalidDomain for an invalid record."""
    record = (vmi["metadata"].get("annotations") or {}).get(HARDWARE_ANNOTATION)
    if record is None:
        return domain
    try:
        return restore_hardware(str(record), domain)
    except InvalidHardwareRecord as damaged:
        raise InvalidDomain(
            f"annotation {HARDWARE_ANNOTATION}: {damaged}; restore the annotation or remove it"
        ) from damaged


def define_like_kubevirt(vmi: Json, domain: str, define: Callable[[str], str]) -> None:
    """Defines the domain as virt-launcher does, with placeholder NICs and ports for hotplug. The recorded hardware is
    restored in each define, as by the sidecar hook."""
    spec = vmi["spec"]
    machine = at(spec, "domain", "machine", "type") or "q35"
    nics = at(spec, "domain", "devices", "interfaces") or ()
    ports = hotplug_ports(len(nics), memory_of(spec.get("domain") or {}), None) if "q35" in machine else None
    root = etree.fromstring(domain)

    def define_with_record(text: str) -> str:
        return define(with_recorded_hardware(vmi, text))

    # As KubeVirt 1.9 does.
    model = "virtio-non-transitional"
    assign_pci_addresses(root, ports, model, define_with_record, reads_back=False, ejectable=True)


def domain_name(metadata: Json) -> str:
    """Returns KubeVirt's domain name plus part of the UID, because an earlier VMI with the name may still run."""
    return f"{metadata['namespace']}_{metadata['name']}_{metadata['uid'][:8]}"


def memory_of(domain: Json) -> int:
    named = (domain.get("memory") or {}).get("guest")
    if named is not None and not to_int(str(named)):
        raise InvalidDomain(f"memory.guest: {named!r} must be a quantity of at least 1 byte")
    return guest_memory(domain)


def _cpu(root: Any, cpu: Json, host: DomainContext) -> None:
    counts = {part: int(cpu.get(part) or 1) for part in ("sockets", "cores", "threads")}
    _add(root, "vcpu", text=str(counts["sockets"] * counts["cores"] * counts["threads"]))
    model = str(cpu.get("model") or "host-model")
    if host.kvm:
        mode = model if model in ("host-model", "host-passthrough") else "custom"
        element = _add(root, "cpu", mode=mode, **({"match": "exact"} if mode == "custom" else {}))
        if mode == "custom":
            _add(element, "model", text=model)
    else:
        # Without KVM, QEMU cannot emulate the host's CPU, and emulates few named models completely.
        element = _add(root, "cpu")
    _add(element, "topology", **{part: str(count) for part, count in counts.items()})


def _os(root: Any, vmi: Json, domain: Json, host: DomainContext) -> None:
    os = _add(root, "os")
    machine = (domain.get("machine") or {}).get("type") or "q35"
    _add(os, "type", text="hvm", arch="x86_64", machine=machine)
    if host.guest is not None:
        _add(os, "kernel", text=str(host.guest.kernel))
        _add(os, "initrd", text=str(host.guest.initrd))
        _add(os, "cmdline", text=_command_line(vmi, host))


def _command_line(vmi: Json, host: DomainContext) -> str:
    return command_line(vmi["metadata"]["name"], host.faults)


def _devices(root: Any, devices: Json, files: Mapping[str, VolumeFile], host: DomainContext) -> None:
    element = _add(root, "devices")
    disks = devices.get("disks") or ()
    inputs = [device for _, device in entries(devices, "inputs")]
    _controllers(element, devices, {*(_bus(disk)[1] for disk in disks), *(each.get("bus") or "usb" for each in inputs)})
    targets: set[str] = set()
    for disk in disks:
        if disk["name"] in files:
            _disk(element, disk, files[disk["name"]], targets)
    for nic in devices.get("interfaces") or ():
        if nic.get("sriov") is None and nic.get("state") != ABSENT:
            _interface(element, nic)
    serial = _add(element, "serial", type="pty")
    _add(serial, "log", file=str(host.console), append="on")
    _add(serial, "target", port="0")
    _add(_add(element, "console", type="pty"), "target", type="serial", port="0")
    for device in inputs:
        _input(element, device)
    _single_devices(element, devices)


def _controllers(element: Any, devices: Json, buses: set[str]) -> None:
    """Adds the controllers of the buses that devices use, or that a hotplug may need."""
    _add(element, "controller", type="usb", index="0", model="qemu-xhci" if "usb" in buses else "none")
    if devices.get("disableHotplug") is not True or "scsi" in buses:
        _add(element, "controller", type="scsi", index="0", model="virtio-non-transitional")
    if devices.get("autoattachSerialConsole") is not False:
        _add(element, "controller", type="virtio-serial", index="0", model="virtio-non-transitional")


def _single_devices(element: Any, devices: Json) -> None:
    """Adds the devices of which a VM has at most one."""
    if devices.get("watchdog") is not None:
        action = at(devices, "watchdog", "i6300esb", "action") or "reset"
        _alias(_add(element, "watchdog", model="i6300esb", action=str(action)), at(devices, "watchdog", "name"))
    if devices.get("sound") is not None:
        model = at(devices, "sound", "model") or "ich9"
        _alias(_add(element, "sound", model=str(model)), at(devices, "sound", "name"))
    if devices.get("rng") is not None:
        rng = _add(element, "rng", model="virtio-non-transitional")
        _add(rng, "backend", text="/dev/urandom", model="random")
    balloon = devices.get("autoattachMemBalloon") is not False
    _add(element, "memballoon", model="virtio-non-transitional" if balloon else "none")


def _video(devices: Any, spec: Json) -> None:
    """Adds the display and its adapter. Without the adapter, libvirt would give its PCI slot to a root port that is
    added later, and the guest would number its buses anew."""
    if at(spec, "domain", "devices", "autoattachGraphicsDevice") is not False:
        model = at(spec, "domain", "devices", "video", "type") or "vga"
        # libvirt chooses a socket in the directory of the domain, which differs between nodes.
        _add(_add(devices, "graphics", type="vnc"), "listen", type="socket")
        _add(_add(devices, "video"), "model", type=str(model), heads="1")


def _bus(disk: Json) -> tuple[str, str]:
    """Returns the device type and the bus of a disk."""
    kind = disk_kind(disk)
    return kind, str((disk.get(kind) or {}).get("bus") or ("sata" if kind == "cdrom" else "virtio"))


def disk_xml(disk: Json, source: VolumeFile, targets: Collection[str]) -> str:
    """Returns the XML of a disk to attach, whose name is not one of `targets`."""
    return _device_xml(lambda parent: _disk(parent, disk, source, set(targets)))


def interface_xml(nic: Json) -> str:
    """Returns the XML of a NIC to attach."""
    return _device_xml(lambda parent: _interface(parent, nic))


def _device_xml(add: Callable[[Any], None]) -> str:
    parent = etree.Element("devices")
    add(parent)
    return str(etree.tostring(parent[0], encoding="unicode"))


def _disk(devices: Any, disk: Json, source: VolumeFile, targets: set[str]) -> None:
    kind, bus = _bus(disk)
    if bus not in BUSES:
        raise InvalidDomain(
            f"disk {disk['name']!r}: bus: Unsupported value: {bus!r}: supported values: {', '.join(BUSES)}"
        )
    element = _add(devices, "disk", type="file", device="cdrom" if kind == "cdrom" else "disk")
    if bus == "virtio":
        element.set("model", "virtio-non-transitional")
    _add(element, "driver", name="qemu", type=source.format, discard="unmap")
    _add(element, "source", file=str(source.path))
    target = next(name for name in map((BUSES[bus] + "{}").format, map(_drive_letters, count())) if name not in targets)
    targets.add(target)
    _add(element, "target", dev=target, bus=bus)
    if disk.get("serial"):
        _add(element, "serial", text=str(disk["serial"]))
    if kind == "cdrom" or (disk.get(kind) or {}).get("readonly"):
        _add(element, "readonly")
    if disk.get("bootOrder"):
        _add(element, "boot", order=str(disk["bootOrder"]))
    _alias(element, disk.get("name"))
    _address(element, (disk.get(kind) or {}).get("pciAddress"))


def _drive_letters(index: int) -> str:
    """Returns the suffix of a device name: a, b, ..., z, aa, ab, ..."""
    return (_drive_letters(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)


def _interface(devices: Any, nic: Json) -> None:
    """Adds a NIC with user-mode networking, the only networking of an unprivileged libvirt."""
    element = _add(devices, "interface", type="user")
    if nic.get("macAddress"):
        _add(element, "mac", address=mac_address.normalize(nic["macAddress"]))
    model = nic.get("model") or "virtio"
    _add(element, "model", type="virtio-non-transitional" if model == "virtio" else model)
    if nic.get("bootOrder"):
        _add(element, "boot", order=str(nic["bootOrder"]))
    _alias(element, nic.get("name"))
    _address(element, nic.get("pciAddress"))


def _input(devices: Any, given: Json) -> None:
    bus = str(given.get("bus") or "usb")
    element = _add(devices, "input", type=str(given.get("type") or "tablet"), bus=bus)
    if bus == "virtio":
        element.set("model", "virtio")
    _alias(element, given.get("name"))


def _alias(device: Any, name: Any) -> None:
    """Adds KubeVirt's alias, which identifies the device in recorded hardware."""
    if name:
        _add(device, "alias", name=f"ua-{name}")


def _address(device: Any, address: str | None) -> None:
    if not address:
        return
    found = PCI.match(address)
    if found is None:
        raise InvalidDomain(f"pciAddress: Invalid value: {address!r}: must be a PCI address such as 0000:07:00.0")
    parts = zip(("domain", "bus", "slot", "function"), found.groups(), strict=True)
    _add(device, "address", type="pci", **{part: f"0x{value}" for part, value in parts})


def _qemu_commandline(root: Any, domain: Json, host: DomainContext) -> None:
    line = etree.SubElement(root, f"{{{QEMU}}}commandline")
    memory = () if host.kvm else _uneven_memory(memory_of(domain))
    for argument in (*_smbios(domain.get("firmware") or {}), *memory):
        etree.SubElement(line, f"{{{QEMU}}}arg", value=argument)
    etree.SubElement(line, f"{{{QEMU}}}env", name="POOLHOUSE_DIR", value=host.marker)


def _smbios(firmware: Json) -> Sequence[str]:
    """Returns QEMU options with the guest's UUID and serial. libvirt's <sysinfo> allows only the UUID of the domain."""
    shown = [("uuid", firmware.get("uuid")), ("serial", firmware.get("serial"))]
    # In QEMU's options, a comma in a value is written twice.
    given = [f"{name}={str(value).replace(',', ',,')}" for name, value in shown if value]
    return ("-smbios", ",".join(["type=1", "manufacturer=KubeVirt", *given]))


def _uneven_memory(memory: int) -> Sequence[str]:
    """Returns QEMU options for a memory size that is not a multiple of 256 KiB, for emulated guests.

    For multiples, `cpu_physical_memory_sync_dirty_bitmap` of QEMU 7.2 reads the dirty bits of 64 pages at once. The
    function does not notify the emulated CPU, so QEMU does not track later writes to these pages. A live migration
    loses these writes, and the guest hangs or reboots. For other sizes QEMU reads page by page and notifies the CPU.
    """
    kib = -(-memory // (1 << 20)) * 1024 + 8  # libvirt rounds to MiB, QEMU to 8 KiB
    backend = f"memory-backend-ram,id={MEMORY_BACKEND},size={kib << 10}"
    return ("-object", backend, "-machine", f"memory-backend={MEMORY_BACKEND}", "-m", f"size={kib}k")


def _add(parent: Any, tag: str, /, *, text: str | None = None, **attributes: str) -> Any:
    element = etree.SubElement(parent, tag, attributes)
    element.text = text
    return element
