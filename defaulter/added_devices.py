"""Chooses the PCI addresses of devices that are added to a VM which has its hardware already.

A spec has no addresses of controllers, balloon, watchdog and random number generator: libvirt gives them the lowest
free addresses at each start. An added device therefore gets a port that is free in the domain without the device. The
other devices then keep their addresses, and a hotplug into the running domain finds the port empty.

KubeVirt's placeholder NICs occupy the lowest free ports while libvirt assigns addresses, one port fewer for each NIC.
An added NIC gets such a port; a disk gets one only if no other port is free. Such a disk keeps its address, but at the
next start it moves the devices that have no address in the spec.

A device that is hotplugged gets an address only if its port is known to be empty in the running domain. Otherwise
libvirt chooses the port at the hotplug, and the address is written when the VM has stopped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from defaulter.codecs import PCI
from defaulter.field_record import read_record
from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.kubevirt_defaults import ClusterConfig, add_devices
from defaulter.machine_types import is_canonical
from defaulter.undefaulted import addressable_devices, devices_without_pci_address
from defaulter.vm_paths import VMLocation
from defaulter.vmi_spec import disk_kind, holds_addresses, is_emulated, may_have_bridge
from defaulter.xml import Element
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.versions import Release, parse_release

OUTDATED_LAUNCHER = "kubevirt.io/outdatedLauncherImage"
MAX_STARTS = 16
"""limit of the specs whose domains are defined, each of which takes some milliseconds"""
FIRST_PORT = "0000:01:00.0"
_LAST_BUS = 31
"""the last bus behind a root port: each port takes one of the 32 slots of bus 0"""


@dataclass(frozen=True)
class AddedDevice:
    path: Path
    """path of its PCI address in the document"""
    is_nic: bool
    hotplugged: bool
    """whether KubeVirt hotplugs the device into a running domain, instead of adding it at the next start"""


@dataclass(frozen=True)
class Ports:
    """The root ports of a defined domain, by the numbers of their buses."""

    free: tuple[int, ...]
    """empty ports that accept a hotplug, in ascending order"""
    placeholders: int = 0
    """how many of the lowest free ports KubeVirt's placeholder NICs occupy while libvirt assigns addresses"""
    last: int = 0
    """the highest number of a port"""

    @property
    def of_placeholders(self) -> tuple[int, ...]:
        return self.free[: self.placeholders]

    @property
    def spare(self) -> tuple[int, ...]:
        """Free ports that no placeholder occupies."""
        return self.free[self.placeholders :]


def read_ports(domain: Element, placeholders: int) -> Ports:
    devices = domain.findall("devices/*")
    occupied = {
        int(address.get("bus", "0"), 16)
        for device in devices
        if device.get("model") != "pcie-root-port"
        for address in device.iterfind("address[@type='pci']")
    }
    ports = {int(device.get("index", "0")): device for device in devices if device.get("model") == "pcie-root-port"}
    accepting = [index for index, port in ports.items() if port.find("target[@hotplug='off']") is None]
    free = sorted(set(accepting) - occupied)
    return Ports(tuple(free), min(placeholders, len(free)), max(ports, default=0))


def choose_ports(
    added: Iterable[AddedDevice], next_start: Ports, running: Sequence[Ports] | None = ()
) -> Iterator[tuple[AddedDevice, int | None]]:
    """The port of each added device; None for a device whose port libvirt must choose.

    `next_start` has the ports of the VM without the added devices. `running` has the ports that the running domain can
    have. It is empty for a VM that does not run, and None if the ports of the running domain are unknown.
    """
    taken: set[int] = set()
    nics = 0  # that have been added
    for device in added:
        port = None
        if running is not None or not device.hotplugged:
            empty = [set(ports.free) for ports in running or ()] if device.hotplugged else []
            candidates = _preferred(device, next_start, has_placeholder=nics < next_start.placeholders)
            if not empty:
                candidates = (*candidates, *range(next_start.last + 1, _LAST_BUS + 1))
            candidates = tuple(port for port in candidates if all(port in each for each in empty))
            port = next((port for port in candidates if port not in taken), None)
        if port is not None:
            taken.add(port)
        nics += device.is_nic
        yield device, port


def _preferred(device: AddedDevice, ports: Ports, has_placeholder: bool) -> tuple[int, ...]:
    if device.is_nic and has_placeholder:
        return (*ports.of_placeholders, *ports.spare)
    if device.hotplugged:
        return (*ports.spare, *reversed(ports.of_placeholders))
    return ports.spare


def find_added(
    document: Json, location: VMLocation, old: Json | None, runs: bool, cluster: ClusterConfig
) -> list[AddedDevice]:
    """The devices without an address, if the VM's other hardware is known or its guest runs.

    A halted VM without hardware in its spec gets none: KubeVirt has chosen the addresses at each of its starts, and
    chooses the same again."""
    spec = at(document, *location.spec)
    if old is None or not (runs or _has_hardware(old, location, cluster)) or not holds_addresses(spec, location):
        return []
    hotpluggable = set(hotpluggable_volumes(spec))
    found = []
    left_open = set(left_for_bridge(document, location, old))
    for path in devices_without_pci_address(document, location):
        if path in left_open:
            continue
        is_nic = "interfaces" in path
        name = at(document, *_device(path, location), "name")
        found.append(AddedDevice(path, is_nic, is_nic or name in hotpluggable))
    return found


def left_for_bridge(document: Json, location: VMLocation, old: Json | None) -> Iterator[Path]:
    """Paths of the addresses that are unset in the stored document too, if one of both VMs has a bridge, which an
    address may move."""
    if old is None or not any(may_have_bridge(at(each, *location.spec) or {}) for each in (document, old)):
        return
    before = {_identify(old, path, location) for path in devices_without_pci_address(old, location)}
    for path in devices_without_pci_address(document, location):
        if _identify(document, path, location) in before:
            yield path


def _identify(document: Json, address: Path, location: VMLocation) -> tuple[Any, Any]:
    """The list and the name of the device whose address has this path."""
    device = _device(address, location)
    return device[-2], at(document, *device, "name")


def is_copy_of_vm(document: Json) -> bool:
    """Whether KubeVirt copies NICs from a VM into the document. It requires a restart if they differ from the VM's."""
    owners = at(document, "metadata", "ownerReferences")
    return document.get("kind") == "VirtualMachineInstance" and any(
        owner.get("kind") == "VirtualMachine" for _, owner in entries(owners)
    )


def running_addresses(
    added: Iterable[AddedDevice], document: Json, location: VMLocation, vmi: Json, vmi_location: VMLocation
) -> Iterator[tuple[AddedDevice, str]]:
    """The address that an added device has in the VMI already, because it was hotplugged by a request for the VMI."""
    addresses = {}
    for path in addressable_devices(vmi, vmi_location):
        address = at(vmi, *path)
        if isinstance(address, str) and PCI.accepts(address):
            addresses["interfaces" in path, at(vmi, *_device(path, vmi_location), "name")] = address
    taken = {at(document, *path) for path in addressable_devices(document, location)}
    for device in added:
        found = addresses.get((device.is_nic, at(document, *_device(device.path, location), "name")))
        if found is not None and found not in taken:
            yield device, found


def _has_hardware(stored: Json, location: VMLocation, cluster: ClusterConfig) -> bool:
    """Whether the addresses of the stored VM are decided. A canonical machine type is no evidence: virt-api and
    Poolhouse write it into a VM that stops. Devices that KubeVirt adds at each start have no address, and the bus or
    the model that a device gets at each start decides whether it has one.

    A VM with a record of defaulted fields may have devices without an address, which were hotplugged."""
    machine = at(stored, *location.spec, "domain", "machine", "type")
    if not isinstance(machine, str) or not is_canonical(machine):
        return False
    editor = DocumentEditor(stored)
    add_devices(editor, replace(location, has_preference=False), cluster)
    if editor.filled:
        return False
    decided = [not is_unset(at(stored, *path)) for path in addressable_devices(stored, location)]
    if read_record(stored, location):
        return any(decided) or not decided
    return all(decided) and not any(_models_unset(at(stored, *location.spec)))


def _models_unset(spec: Json) -> Iterator[bool]:
    """For each NIC and disk, whether its model or bus is open. KubeVirt chooses it when the VM starts, and with it
    whether the device needs an address."""
    devices = at(spec, "domain", "devices")
    for _, interface in entries(devices, "interfaces"):
        yield is_emulated(interface) and is_unset(interface.get("model"))
    for _, disk in entries(devices, "disks"):
        yield is_unset(at(disk, disk_kind(disk) or "disk", "bus"))


def _device(address: Path, location: VMLocation) -> Path:
    """The path of the device whose address has this path."""
    return address[: len(location.spec) + 4]


def hotpluggable_volumes(spec: Any) -> Iterator[str]:
    for _, volume in entries(spec, "volumes"):
        if any(at(volume, source, "hotpluggable") is True for source in ("dataVolume", "persistentVolumeClaim")):
            yield str(volume.get("name"))


def without_devices(document: Json, location: VMLocation, paths: Iterable[Path]) -> Json:
    """The VMI spec without the devices at these paths."""
    dropped = {_device(path, location) for path in paths}
    editor = DocumentEditor(document)
    for name in ("disks", "interfaces"):
        devices = (*location.spec, "domain", "devices", name)
        kept = [device for index, device in entries(document, *devices) if (*devices, index) not in dropped]
        if at(document, *devices) is not None:
            editor.replace(devices, kept)
    spec: Json = editor.get(location.spec)
    return spec


def possible_starts(vmi: Json, location: VMLocation) -> list[Json] | None:
    """The VMI specs with which the domain of a running VMI may have started; None if they are unknown.

    A device that KubeVirt can hotplug may have been there at the start, or have been hotplugged since. The number of
    root ports depends on it. A device without an address, an SR-IOV NIC, or memory that was hotplugged has an address
    that no spec shows.
    """
    spec = at(vmi, *location.spec)
    if not isinstance(spec, dict) or not at(spec, "domain", "machine", "type"):
        return None
    if any(devices_without_pci_address(vmi, location)) or any(_unknown_nics(spec)):
        return None
    memory = at(vmi, "status", "memory")
    at_start = to_int(at(memory, "guestAtBoot"))
    if at_start is not None and at_start != to_int(at(memory, "guestCurrent") or at(memory, "guestAtBoot")):
        return None
    if at_start is not None:
        editor = DocumentEditor(vmi)
        editor.replace((*location.spec, "domain", "memory", "guest"), str(at_start))
        vmi = editor.document
    disks, nics = _hotpluggable_devices(vmi, location)
    # KubeVirt appends a hotplugged device to the VMI, so the last ones of a list are those that were hotplugged.
    later = [[*some, *others] for some in _tails(disks) for others in _tails(nics)]
    if len(later) > MAX_STARTS:
        return None
    return [without_devices(vmi, location, paths) for paths in later]


def _hotpluggable_devices(vmi: Json, location: VMLocation) -> tuple[list[Path], list[Path]]:
    """The addresses of the disks and of the NICs that may have been hotplugged, in the order of the VMI."""
    spec, paths = at(vmi, *location.spec), list(addressable_devices(vmi, location))
    hotpluggable = set(hotpluggable_volumes(spec))
    disks = [path for path in paths if at(vmi, *_device(path, location), "name") in hotpluggable]
    pods = {network.get("name") for _, network in entries(spec, "networks") if network.get("pod") is not None}
    # KubeVirt never hotplugs a NIC on the pod network. The first port is empty only for a NIC of the start.
    nics = [path for path in paths if "interfaces" in path and at(vmi, *path) != FIRST_PORT]
    return disks, [path for path in nics if at(vmi, *_device(path, location), "name") not in pods]


def launcher_release(vmi: Json, settings: ClusterSettings) -> Release | None:
    """The release of the virt-launcher in which the VMI runs; None if it is unknown. The tag of its image has it, or it
    is the release of a cluster that has not been updated since."""
    image = str(at(vmi, "status", "launcherContainerImageVersion") or "")
    if (found := parse_release(image.rpartition(":")[2])) is not None:
        return found
    is_outdated = OUTDATED_LAUNCHER in (at(vmi, "metadata", "labels") or {})
    return settings.release if len(settings.versions) == 1 and not is_outdated else None


def _tails(paths: Sequence[Path]) -> Iterator[Sequence[Path]]:
    return (paths[index:] for index in range(len(paths) + 1))


def _unknown_nics(spec: Json) -> Iterator[bool]:
    for _, nic in entries(spec, "domain", "devices", "interfaces"):
        yield (
            nic.get("sriov") is not None
            and nic.get("state") != "absent"
            and not PCI.accepts(nic.get("pciAddress") or "")
        )
