"""Assigns PCI addresses with libvirt, in the order in which virt-launcher does it.

virt-launcher defines a domain three times:

1. with placeholder NICs, which keep the first addresses for NICs that are hotplugged later;
2. without the placeholders;
3. with empty root ports for hotplug.

A single define gives other addresses, for example 0000:04:00.0 for a root disk that KubeVirt puts at 0000:07:00.0. The
second define is left out here: virt-launcher does not use libvirt's answer to it, and the third has all its devices.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from defaulter import xml
from defaulter.xml import Element

Define = Callable[[str], str]

_UNREAD_ADDRESSES = ("filesystem", "panic", "sound", "video", "vsock")
"""devices whose addresses virt-launcher does not keep: each define chooses them again"""
_ROOT_MODELS = ("pci-root", "pcie-root", "pcie-expander-bus")
_LAST_BUS = 31
"""the last bus behind a root port: each port takes one of the 32 slots of bus 0"""
_LARGE_MEMORY_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class HotplugPorts:
    """The root ports that KubeVirt keeps free for hotplug."""

    placeholders: int
    """number of NICs that reserve addresses in the first define"""
    total: int
    """number of free and used ports of the VM"""
    min_free: int

    def extra(self, used: int) -> int:
        return max(0, max(self.total - used, self.min_free) - self.placeholders)


def hotplug_ports(nics: int, memory_bytes: int, slots: int | None) -> HotplugPorts:
    """The ports in version 3 of KubeVirt's PCI topology. `slots` is the number of NIC slots in the VM's annotation."""
    if slots is None:
        slots = 4 if nics else 0
    total, min_free = (16, 6) if memory_bytes > _LARGE_MEMORY_BYTES else (8, 3)
    return HotplugPorts(max(0, slots - nics), total, min_free)


def assign_pci_addresses(
    domain: Element,
    ports: HotplugPorts | None,
    nic_model: str,
    define: Define,
    *,
    reads_back: bool,
    ejectable: bool = False,
) -> Element:
    """The domain after virt-launcher's last define, or after one define if `ports` is None. Changes `domain`.

    KubeVirt up to 1.9 reads the domain back only if it has placeholders. Without them, its extra ports are the first
    ports of the domain, and its devices occupy them: `reads_back=False`. Up to 1.9, all devices are `ejectable`: the
    guest, and a hotplug, can remove them from their ports.
    """
    if ports is None:
        return xml.read(define(xml.write(domain)))
    extra = ports.extra(len(_pci_devices(domain)))
    if not ports.placeholders and not reads_back:
        _append_ports(_devices(domain), extra)
        return xml.read(define(xml.write(domain)))
    first, originals = deepcopy(domain), [deepcopy(nic) for nic in _devices(domain).iterfind("interface")]
    _devices(first).extend(_placeholder(index, nic_model) for index in range(ports.placeholders))
    # virt-launcher reads only the devices back from libvirt.
    devices = _devices(xml.read(define(xml.write(first))))
    domain.replace(_devices(domain), devices)
    _drop_unread_addresses(devices)
    if ports.placeholders:
        for nic in devices.findall("interface"):
            devices.remove(nic)
        devices.extend(originals)
    _append_ports(devices, extra)
    if not ejectable:
        _forbid_unplug(devices)
    return xml.read(define(xml.write(domain)))


def has_bridge(domain: Element) -> bool:
    """Whether libvirt has put a device behind a bridge, because the device is conventional PCI and not PCI Express."""
    return any((controller.get("model") or "").endswith("-pci-bridge") for controller in _devices(domain))


def place_on_root_complex(domain: Element) -> bool:
    """Gives each device without an address the next slot of the root bus, as KubeVirt does; False if the bus is
    full."""
    slots = iter(slot for slot in range(2, 32) if slot not in (0x1B, 0x1F))
    for device in _pci_devices(domain):
        is_absent = device.tag == "memballoon" and device.get("model") == "none"
        if device.find("address") is None and not is_absent:
            slot = next(slots, None)
            if slot is None:
                return False
            xml.add(device, "address", type="pci", domain="0x0000", bus="0x00", slot=f"{slot:#04x}", function="0x0")
    return True


def _pci_devices(domain: Element) -> list[Element]:
    """The PCI devices of the spec in KubeVirt's order. KubeVirt counts an absent balloon too."""
    devices = _devices(domain)
    return [
        *devices.findall("interface"),
        *devices.findall("hostdev[@type='pci']"),
        *(c for c in devices.findall("controller") if c.get("model") not in _ROOT_MODELS),
        *(disk for disk in devices.findall("disk") if disk.find("target[@bus='virtio']") is not None),
        *devices.findall("input[@bus='virtio']"),
        *devices.findall("watchdog"),
        *devices.findall("rng"),
        *devices.findall("memballoon"),
    ]


def _devices(domain: Element) -> Element:
    devices = domain.find("devices")
    assert devices is not None
    return devices


def _placeholder(index: int, model: str) -> Element:
    name = f"placeholder-{index}"
    nic = xml.element("interface", type="ethernet")
    xml.add(nic, "model", type=model)
    xml.add(nic, "target", dev=name, managed="no")
    xml.add(nic, "alias", name=name)
    return nic


def _drop_unread_addresses(devices: Element) -> None:
    for device in devices.iterchildren(*_UNREAD_ADDRESSES):
        for address in device.findall("address[@type='pci']"):
            device.remove(address)


def _append_ports(devices: Element, count: int) -> None:
    indexes = [int(c.get("index", "0")) for c in devices.iterfind("controller[@type='pci']")]
    first = max(indexes, default=0) + 1
    for index in range(first, min(first + count, _LAST_BUS + 1)):
        xml.add(devices, "controller", type="pci", index=str(index), model="pcie-root-port")


def _forbid_unplug(devices: Element) -> None:
    """Disables hotplug on ports without a NIC, so that a guest cannot eject its own disk."""
    occupied = {
        address.get("bus")
        for device in devices
        if device.tag != "interface" and device.get("model") not in (*_ROOT_MODELS, "pcie-root-port")
        for address in device.iterfind("address[@type='pci']")
    }
    for port in devices.iterfind("controller[@model='pcie-root-port']"):
        if f"0x{int(port.get('index', '0')):02x}" in occupied:
            target = port.find("target")
            (target if target is not None else xml.add(port, "target")).set("hotplug", "off")
