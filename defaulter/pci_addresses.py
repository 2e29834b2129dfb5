"""The order in which KubeVirt asks libvirt for addresses, which decides them.

virt-launcher does not define a domain once. It first defines it with placeholder NICs, so that room for later NICs lies
in front of everything else, drops them, defines again, and appends empty root ports for hotplug before the last define.
A single define would give other addresses (0000:04:00.0 for a root disk that KubeVirt has at 0000:07:00.0).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from defaulter import xml
from defaulter.xml import Element

Define = Callable[[str], str]

_ROOTS = ("pci-root", "pcie-root", "pcie-expander-bus")
_LAST_BUS = 31
"""each root port takes a slot of bus 0, which has 32"""
_LARGE_MEMORY_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class HotplugPorts:
    """How much room KubeVirt leaves for devices that come later."""

    placeholders: int
    """NICs that hold a place while the others are laid out"""
    total: int
    """ports that a VM is meant to have, used ones counted"""
    least: int
    """ports that must stay free however many are used"""

    def extra(self, used: int) -> int:
        return max(0, max(self.total - used, self.least) - self.placeholders)


def hotplug_ports(nics: int, memory_bytes: int, slots: int | None) -> HotplugPorts:
    """KubeVirt's third topology: slots counts the places for NICs where the VM's annotation freezes them."""
    if slots is None:
        slots = 4 if nics else 0
    total, least = (16, 6) if memory_bytes > _LARGE_MEMORY_BYTES else (8, 3)
    return HotplugPorts(max(0, slots - nics), total, least)


def assign_pci_addresses(domain: Element, room: HotplugPorts | None, nic_model: str, define: Define) -> Element:
    """The domain as libvirt has it after all of KubeVirt's passes; without room, after a single one."""
    if room is None:
        return xml.read(define(xml.write(domain)))
    extra = room.extra(count_used_ports(domain))
    devices = _devices(domain)
    originals = [deepcopy(nic) for nic in devices.iterfind("interface")]
    if room.placeholders:
        first = deepcopy(domain)
        for index in range(room.placeholders):
            _devices(first).append(_placeholder(index, nic_model))
        devices = _devices(xml.read(define(xml.write(first))))
        for nic in devices.findall("interface"):
            devices.remove(nic)
        devices.extend(originals)
        _exchange(domain, devices)
        define(xml.write(domain))
    else:
        devices = _devices(xml.read(define(xml.write(domain))))
        _exchange(domain, devices)
    _append_ports(devices, extra)
    _hold_occupied(devices)
    return xml.read(define(xml.write(domain)))


def count_used_ports(domain: Element) -> int:
    """Devices that KubeVirt counts as taking a port, before libvirt has added any of its own."""
    devices = _devices(domain)
    return (
        len(devices.findall("interface"))
        + len(devices.findall("hostdev[@type='pci']"))
        + sum(controller.get("model") not in _ROOTS for controller in devices.iterfind("controller"))
        + len(devices.findall("disk/target[@bus='virtio']"))
        + len(devices.findall("input[@bus='virtio']"))
        + len(devices.findall("watchdog"))
        + len(devices.findall("rng"))
        + len(devices.findall("memballoon"))
    )


def place_on_root_complex(domain: Element) -> bool:
    """KubeVirt's placement on the root complex: slots in order, each device without an address the next; False where
    the bus is full."""
    slots = iter(slot for slot in range(2, 32) if slot not in (0x1B, 0x1F))
    for device in _numbered(_devices(domain)):
        if device.find("address") is None:
            slot = next(slots, None)
            if slot is None:
                return False
            xml.add(device, "address", type="pci", domain="0x0000", bus="0x00", slot=f"{slot:#04x}", function="0x0")
    return True


def _numbered(devices: Element) -> list[Element]:
    return [
        *devices.findall("interface"),
        *devices.findall("hostdev[@type='pci']"),
        *(c for c in devices.findall("controller") if c.get("model") not in _ROOTS),
        *(disk for disk in devices.findall("disk") if disk.find("target[@bus='virtio']") is not None),
        *devices.findall("input[@bus='virtio']"),
        *devices.findall("watchdog"),
        *devices.findall("rng"),
        *(balloon for balloon in devices.findall("memballoon") if balloon.get("model") != "none"),
    ]


def _devices(domain: Element) -> Element:
    devices = domain.find("devices")
    assert devices is not None
    return devices


def _exchange(domain: Element, devices: Element) -> None:
    """Only devices are read back: KubeVirt keeps the rest as it wrote it."""
    domain.replace(_devices(domain), devices)


def _placeholder(index: int, model: str) -> Element:
    name = f"placeholder-{index}"
    nic = xml.element("interface", type="ethernet")
    xml.add(nic, "model", type=model)
    xml.add(nic, "target", dev=name, managed="no")
    xml.add(nic, "alias", name=name)
    return nic


def _append_ports(devices: Element, count: int) -> None:
    indexes = [int(c.get("index", "0")) for c in devices.iterfind("controller[@type='pci']")]
    following = max(indexes, default=0) + 1
    for index in range(following, min(following + count, _LAST_BUS + 1)):
        xml.add(devices, "controller", type="pci", index=str(index), model="pcie-root-port")


def _hold_occupied(devices: Element) -> None:
    """Ports that hold anything but a NIC lose hotplug, so that a guest cannot eject its own disk."""
    occupied = {
        address.get("bus")
        for device in devices
        if device.tag != "interface" and device.get("model") not in (*_ROOTS, "pcie-root-port")
        for address in device.iterfind("address[@type='pci']")
    }
    for port in devices.iterfind("controller[@model='pcie-root-port']"):
        if f"0x{int(port.get('index', '0')):02x}" in occupied:
            target = port.find("target")
            (target if target is not None else xml.add(port, "target")).set("hotplug", "off")
