"""What a VMI shows of its running guest: MAC addresses, and the PCI addresses that were read in the domain.

A VMI has no PCI address that libvirt chose. The domain has them, and the controllers note in an annotation of the VMI
those that a spec can hold. The note ends with the guest, requires no restart, and the webhook and the next leader of
the controllers find it.

The XML comes from the launcher, a Pod of the tenant, and any user who may change the VMI can write the note. Both may
say anything. Only devices of the VMI count, and only well-formed addresses, so a lie moves devices of this VM only.
"""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any, Literal

from defaulter import hook
from defaulter.codecs import PCI, format_pci_address
from defaulter.json_paths import Path, is_unset
from defaulter.vm_paths import locate
from defaulter.vmi_spec import alias, disk_kind, holds_addresses, is_emulated, may_have_bridge
from poolhouse.api.apimachinery.unstructured import Json, at, entries

GUEST_ADDRESSES = "poolhouse.dev/guest-addresses"
MAX_DOMAIN_BYTES = 1024 * 1024
"""of XML: a domain with 256 disks has a quarter of it"""

Device = tuple[str, str]
"""`disk` or `interface`, and the name"""
Reading = Literal["read", "forget", ""]


class InvalidDomain(ValueError):
    """The text is no domain XML, or that of another VM."""


def guest_macs(vmi: Json) -> Iterator[tuple[str, str]]:
    """The MAC addresses in the domain, by the name of the interface."""
    for interface in _interfaces_of_domain(vmi):
        name, mac = interface.get("name"), interface.get("mac")
        if isinstance(name, str) and name and isinstance(mac, str) and mac:
            yield name, mac


def _interfaces_of_domain(vmi: Json) -> Iterator[Json]:
    """An interface without a source is one of the domain."""
    for _, interface in entries(vmi, "status", "interfaces"):
        source = interface.get("infoSource")
        if not source or "domain" in str(source):
            yield interface


def read_domain(text: str, name: str = "") -> Json:
    """The addresses in a domain, in the form of a hardware record. With `name`, the domain must have it."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text or len(text) > MAX_DOMAIN_BYTES:
        raise InvalidDomain("a domain has no document type and less than 1 MiB")
    try:
        domain = ET.fromstring(text)
        found = hook.read_record(hook.build_record(domain, "", ""))
    except (ValueError, LookupError, TypeError, AttributeError, ET.ParseError):
        raise InvalidDomain("it is no domain XML, as `virsh dumpxml` prints it") from None
    if name and domain.findtext("name") != name:
        raise InvalidDomain(f"it is not the domain {name}")
    return found


def needed_reading(vmi: Json) -> Reading:
    """Whether to read the domain of a VMI, because a device has an address that is not noted; or to forget a note of a
    device that is gone, because another device with its name would get the address."""
    if at(vmi, "status", "phase") != "Running" or at(vmi, "metadata", "deletionTimestamp"):
        return ""
    devices, noted = set(_devices(vmi)), _noted(vmi).keys()
    if not noted <= devices:
        return "forget"
    return "read" if any(device not in noted for device in devices & set(_devices_of_domain(vmi))) else ""


def note_addresses(vmi: Json, domain: Json) -> str:
    """The note for a VMI, with the addresses in its domain. A device that the domain lacks is noted without an address,
    so that the domain is not read for it again."""
    found, present = domain["addresses"], set(_devices_of_domain(vmi))
    devices = [device for device in _devices(vmi) if device in present]
    return _text(vmi, {(kind, name): _pci(found.get(f"{kind} {alias(name)}")) for kind, name in devices})


def forget_addresses(vmi: Json) -> str | None:
    """The note without devices that are gone; None if it is empty."""
    devices = set(_devices(vmi))
    left = {device: address for device, address in _noted(vmi).items() if device in devices}
    return _text(vmi, left) if left else None


def guest_addresses(vmi: Json) -> dict[Device, str]:
    """The noted addresses of the guest's devices."""
    devices = set(_devices(vmi))
    return {device: address for device, address in _noted(vmi).items() if address and device in devices}


def noted_addresses(vmi: Json) -> Iterator[tuple[Path, str]]:
    """The noted addresses, with the paths that they would have in the VMI."""
    known = guest_addresses(vmi)
    for device, path in addressable(vmi.get("spec")):
        if address := known.get(device):
            yield ("spec", *path), address


def addressable(spec: Any) -> Iterator[tuple[Device, Path]]:
    """The virtio disks and NICs in the spec of a VMI, with the paths of their PCI addresses in the spec. A NIC whose
    model is open is virtio."""
    devices = ("domain", "devices")
    for index, disk in entries(spec, *devices, "disks"):
        name = disk.get("name")
        if isinstance(name, str) and disk_kind(disk) == "disk" and at(disk, "disk", "bus") == "virtio":
            yield ("disk", name), (*devices, "disks", index, "disk", "pciAddress")
    for index, interface in entries(spec, *devices, "interfaces"):
        name = interface.get("name")
        if isinstance(name, str) and is_emulated(interface):
            yield ("interface", name), (*devices, "interfaces", index, "pciAddress")


def _pci(address: Any) -> str:
    try:
        found = format_pci_address(address) if address is not None else None
    except ValueError:
        return ""
    return found if found is not None and PCI.accepts(found) else ""


def _devices(vmi: Json) -> Iterator[Device]:
    """The devices whose address a spec can hold, and that of the VMI does not. None if not every address keeps its
    device there, see `may_have_bridge`."""
    location = locate({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", **vmi})
    spec = vmi.get("spec")
    if location is None or not isinstance(spec, dict) or not holds_addresses(spec, location) or may_have_bridge(spec):
        return
    for device, path in addressable(spec):
        if is_unset(at(spec, *path)):
            yield device


def _devices_of_domain(vmi: Json) -> Iterator[Device]:
    """The disks and NICs that the domain has already, also those that were hotplugged. KubeVirt lists a hotplugged disk
    in the spec first, and its volume in the status a moment later."""
    attached = {
        each.get("name")
        for _, each in entries(vmi, "status", "volumeStatus")
        if each.get("hotplugVolume") is None or each.get("phase") == "Ready"
    }
    for _, disk in entries(vmi, "spec", "domain", "devices", "disks"):
        if disk.get("name") in attached:
            yield "disk", str(disk.get("name"))
    for interface in _interfaces_of_domain(vmi):
        yield "interface", str(interface.get("name"))


def _noted(vmi: Json) -> dict[Device, str]:
    """The note, without what cannot be read. That of another VMI came with a template, and says nothing."""
    try:
        found = json.loads(at(vmi, "metadata", "annotations", GUEST_ADDRESSES) or "{}")
        if found.get("vmi") != at(vmi, "metadata", "uid"):
            return {}
        pairs = [(key.partition(" "), address) for key, address in found["addresses"].items()]
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return {}
    return {(kind, name): address for (kind, _, name), address in pairs if address == "" or PCI.accepts(address)}


def _text(vmi: Json, addresses: dict[Device, str]) -> str:
    named = {f"{kind} {name}": address for (kind, name), address in addresses.items()}
    content = {"vmi": at(vmi, "metadata", "uid"), "addresses": named}
    return json.dumps(content, separators=(",", ":"), sort_keys=True)
