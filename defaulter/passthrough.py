"""Devices of the host in a guest: stand-ins that take the same places, since only a node knows the real ones."""

from __future__ import annotations

from collections.abc import Iterator

from defaulter import xml
from defaulter.codecs import PCI, pci_attributes
from defaulter.facts import alias, memory_bytes
from defaulter.paths import Json, get, objects
from defaulter.xml import Element


def add(root: Element, devices: Element, spec: Json) -> None:
    for index, (name, address) in enumerate(_functions(spec)):
        _function(devices, index, name, address)
    shared = [fs for _, fs in objects(get(spec, ("domain", "devices", "filesystems"))) if "virtiofs" in fs]
    for filesystem in shared:
        _filesystem(devices, str(filesystem.get("name")))
    if shared:
        _share_memory(root, spec)


def _functions(spec: Json) -> Iterator[tuple[str, str]]:
    """Alias and explicit address, in KubeVirt's order."""
    for field, prefix in (("hostDevices", "hostdevice"), ("gpus", "gpu")):
        for _, device in objects(get(spec, ("domain", "devices", field))):
            yield f"{prefix}-{device.get('name')}", ""
    for _, interface in objects(get(spec, ("domain", "devices", "interfaces"))):
        if "sriov" in interface and interface.get("state") != "absent":
            yield f"sriov-{interface.get('name')}", interface.get("pciAddress") or ""


def _function(devices: Element, index: int, name: str, address: str) -> None:
    device = xml.add(devices, "hostdev", mode="subsystem", type="pci", managed="no")
    # No host has this PCI domain, so libvirt takes the function for what a modern one is: PCI Express.
    slot, function = divmod(index, 8)
    place = {"domain": "0xffff", "bus": "0x00", "slot": f"0x{slot % 32:02x}", "function": f"0x{function}"}
    xml.add(xml.add(device, "source"), "address", **place)
    xml.add(device, "alias", name=alias(name))
    if PCI.accepts(address):
        xml.add(device, "address", **pci_attributes(address))


def _filesystem(devices: Element, name: str) -> None:
    filesystem = xml.add(devices, "filesystem", type="mount", accessmode="passthrough")
    xml.add(filesystem, "driver", type="virtiofs", queue="1024")
    xml.add(filesystem, "source", socket="/virtiofs")
    xml.add(filesystem, "target", dir=name)


def _share_memory(root: Element, spec: Json) -> None:
    """virtiofs wants memory that another process can map, and KubeVirt one NUMA cell to hold it."""
    backing = xml.add(root, "memoryBacking")
    xml.add(backing, "source", type="memfd")
    xml.add(backing, "access", mode="shared")
    cpu = xml.make(root, xml.path("cpu").steps)
    if cpu.find("numa") is None:
        last = int(root.findtext("vcpu") or "1") - 1
        cell = {"id": "0", "cpus": f"0-{last}", "memory": str(memory_bytes(spec) // 1024), "unit": "KiB"}
        xml.add(xml.add(cpu, "numa"), "cell", **cell)
