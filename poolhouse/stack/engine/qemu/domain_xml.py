"""Builds the libvirt domain XML of a VMI. The XML contains the hardware of the spec unchanged."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from lxml import etree

from defaulter import xml
from defaulter.contract import HARDWARE_ANNOTATION, InvalidHardwareRecord, restore_hardware
from defaulter.domain import add_controllers, add_device, add_video, drive_letters
from defaulter.fields import DISKS, INPUTS, INTERFACES, RNG, SOUND, VIDEO, WATCHDOG, DeviceList
from defaulter.pci_addresses import assign_pci_addresses, hotplug_ports
from defaulter.vmi_spec import is_emulated, turned_off, virtio_model
from defaulter.walker import iter_values, list_devices
from defaulter.xml import Element
from poolhouse.api.apimachinery.problem import format_path
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kubevirt.versions import TERMINATE
from poolhouse.stack.engine.fault_injection import NO_FAULTS, Faults
from poolhouse.stack.engine.objects import guest_memory
from poolhouse.stack.engine.qemu.guest_image import GuestImage, command_line

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
MEMORY_BACKEND = "guest.ram"
LEFT_OUT = {"cache", "io", "errorPolicy", "shareable"}
"""fields of a disk that hold for a host's disk, and not for a qcow2 file"""


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
    xml.add(root, "name", text=domain_name(metadata))
    # The engine finds the domain by the VMI's UID. `_smbios` passes the firmware UUID to the guest.
    xml.add(root, "uuid", text=metadata["uid"])
    xml.add(root, "memory", text=str(memory_of(domain)), unit="b")
    _cpu(root, domain.get("cpu") or {}, host)
    _os(root, vmi, domain, host)
    features = xml.add(root, "features")
    if at(domain, "features", "acpi", "enabled") is not False:
        xml.add(features, "acpi")
    xml.add(features, "apic")
    xml.add(root, "clock", offset="utc")
    on_reboot = "destroy" if domain.get("rebootPolicy") == TERMINATE else "restart"
    for event, answer in (("on_poweroff", "destroy"), ("on_reboot", on_reboot), ("on_crash", "destroy")):
        xml.add(root, event, text=answer)
    _devices(root, spec, files, host)
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


def _cpu(root: Element, cpu: Json, host: DomainContext) -> None:
    counts = {part: int(cpu.get(part) or 1) for part in ("sockets", "cores", "threads")}
    xml.add(root, "vcpu", text=str(counts["sockets"] * counts["cores"] * counts["threads"]))
    model = str(cpu.get("model") or "host-model")
    if host.kvm:
        mode = model if model in ("host-model", "host-passthrough") else "custom"
        element = xml.add(root, "cpu", mode=mode, **({"match": "exact"} if mode == "custom" else {}))
        if mode == "custom":
            xml.add(element, "model", text=model)
    else:
        # Without KVM, QEMU cannot emulate the host's CPU, and emulates few named models completely.
        element = xml.add(root, "cpu")
    xml.add(element, "topology", **{part: str(count) for part, count in counts.items()})


def _os(root: Element, vmi: Json, domain: Json, host: DomainContext) -> None:
    os = xml.add(root, "os")
    machine = (domain.get("machine") or {}).get("type") or "q35"
    xml.add(os, "type", text="hvm", arch="x86_64", machine=machine)
    if host.guest is not None:
        xml.add(os, "kernel", text=str(host.guest.kernel))
        xml.add(os, "initrd", text=str(host.guest.initrd))
        xml.add(os, "cmdline", text=command_line(vmi["metadata"]["name"], host.faults))


def _devices(root: Element, spec: Json, files: Mapping[str, VolumeFile], host: DomainContext) -> None:
    element, targets = xml.add(root, "devices"), set[str]()
    for _, disk in list_devices(DISKS, spec):
        if disk["name"] in files:
            _disk(element, disk, spec, files[disk["name"]], targets)
    for _, nic in list_devices(INTERFACES, spec):
        if is_emulated(nic):
            _interface(element, nic, spec)
    for kind in (INPUTS, WATCHDOG, SOUND, RNG):
        for _, device in list_devices(kind, spec):
            _device(element, kind, device, spec)
    serial = xml.add(element, "serial", type="pty")
    xml.add(serial, "log", file=str(host.console), append="on")
    xml.add(serial, "target", port="0")
    xml.add(xml.add(element, "console", type="pty"), "target", type="serial", port="0")
    add_controllers(element, spec)
    xml.add(element, "memballoon", model="none" if turned_off(spec, "autoattachMemBalloon") else virtio_model(spec))
    if not turned_off(spec, "autoattachGraphicsDevice"):
        # libvirt chooses a socket in the directory of the domain, which differs between nodes.
        xml.add(xml.add(element, "graphics", type="vnc"), "listen", type="socket")
        # Without the adapter, libvirt would give its PCI slot to a root port that is added later, and the guest would
        # number its buses anew.
        _check_values(VIDEO, at(spec, "domain", "devices", "video") or {})
        add_video(element, spec)


def disk_xml(disk: Json, spec: Json, source: VolumeFile, targets: Collection[str]) -> str:
    """Returns the XML of a disk to attach, whose name is not one of `targets`."""
    return xml.write(_disk(xml.element("devices"), disk, spec, source, set(targets)))


def interface_xml(nic: Json, spec: Json) -> str:
    """Returns the XML of a NIC to attach."""
    return xml.write(_interface(xml.element("devices"), nic, spec))


def _device(devices: Element, kind: DeviceList, device: Json, spec: Json) -> Element:
    """Adds the device as KubeVirt does."""
    kind = replace(kind, fields=tuple(row for row in kind.fields if row.spec not in LEFT_OUT))
    _check_values(kind, device)
    return add_device(devices, kind, device, spec)


def _check_values(kind: DeviceList, device: Json) -> None:
    for row, path, value in iter_values(kind.fields, device):
        if not row.codec.accepts(value):
            raise InvalidDomain(
                f"{kind.spec} {device.get('name')}: {format_path(path)}: Invalid value: {value!r}: "
                f"must be {row.codec.expected}"
            )


def _disk(devices: Element, disk: Json, spec: Json, source: VolumeFile, targets: set[str]) -> Element:
    element = _device(devices, DISKS, disk, spec)
    element.attrib.update({"type": "file", "device": "cdrom" if element.get("device") == "cdrom" else "disk"})
    xml.find_or_create(element, "driver").attrib.update({"type": source.format, "discard": "unmap"})
    file = xml.find_or_create(element, "source")
    file.attrib.clear()
    file.set("file", str(source.path))
    target = xml.find_or_create(element, "target")
    prefix = "vd" if target.get("bus") == "virtio" else "sd"
    name = next(each for each in (prefix + drive_letters(index) for index in count()) if each not in targets)
    targets.add(name)
    target.set("dev", name)
    return element


def _interface(devices: Element, nic: Json, spec: Json) -> Element:
    """Adds a NIC with user-mode networking, the only networking of an unprivileged libvirt."""
    element = _device(devices, INTERFACES, nic, spec)
    element.set("type", "user")
    return element


def _qemu_commandline(root: Element, domain: Json, host: DomainContext) -> None:
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
