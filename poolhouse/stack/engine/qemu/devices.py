"""Plans the hotplugs of a domain: compares libvirt's XML of the running domain with the VMI."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lxml import etree

from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kubevirt.live_devices import ABSENT
from poolhouse.stack.engine.qemu.domain_xml import VolumeFile, disk_xml, interface_xml
from poolhouse.stack.engine.vmi.devices import DeviceReport

ALIAS = "ua-"


@dataclass(frozen=True)
class DeviceChanges:
    """The XML of devices to detach and to attach."""

    detach: tuple[str, ...] = ()
    attach: tuple[str, ...] = ()


def plan_devices(running: str, vmi: Json, files: Mapping[str, VolumeFile], pending: Collection[str]) -> DeviceChanges:
    """The changes that give a running domain the disks and NICs of its VMI, except disks whose volume is pending."""
    disks, nics = _devices(running, "disk"), _devices(running, "interface")
    spec = vmi["spec"]
    devices = at(spec, "domain", "devices")
    wanted_disks = {str(disk.get("name")): disk for _, disk in entries(devices, "disks")}
    wanted_nics = {str(nic["name"]): nic for _, nic in entries(devices, "interfaces") if nic.get("state") != ABSENT}
    gone = [
        *(element for name, element in disks.items() if name not in wanted_disks),
        *(element for name, element in nics.items() if name not in wanted_nics),
    ]
    targets = {str(target.get("dev")) for element in disks.values() for target in element.iterfind("target")}
    attach = []
    for name, disk in wanted_disks.items():
        if name not in disks and name in files and name not in pending:
            attach.append(disk_xml(disk, spec, files[name], targets))
    plugged = (nic for name, nic in wanted_nics.items() if name not in nics and nic.get("sriov") is None)
    attach += [interface_xml(nic, spec) for nic in plugged]
    return DeviceChanges(tuple(str(etree.tostring(each, encoding="unicode")) for each in gone), tuple(attach))


def read_devices(running: str, problem: str) -> DeviceReport:
    disks = {
        name: str(target.get("dev"))
        for name, disk in _devices(running, "disk").items()
        for target in disk.iterfind("target")
    }
    nics = {
        name: str(mac.get("address"))
        for name, nic in _devices(running, "interface").items()
        for mac in nic.iterfind("mac")
    }
    return DeviceReport(disks, nics, problem)


def _devices(running: str, tag: str) -> dict[str, Any]:
    """The devices with KubeVirt's alias, by name."""
    found = {}
    for device in etree.fromstring(running).iterfind(f"devices/{tag}"):
        for alias in device.iterfind("alias"):
            found[str(alias.get("name")).removeprefix(ALIAS)] = device
    return found
