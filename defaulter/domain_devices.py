"""Adds the devices that KubeVirt adds to every domain, and placeholders for devices of the host.

Each of them takes an address that the other devices then do not get. Only a node knows a real host device, so a
placeholder takes its address.
"""

from __future__ import annotations

from collections.abc import Iterator

from apimachinery.unstructured import Json, entries
from defaulter import walker, xml
from defaulter.codecs import PCI, pci_attributes
from defaulter.fields import VIDEO
from defaulter.vmi_spec import (
    alias,
    architecture,
    device_field,
    memory_bytes,
    turned_off,
    turned_on,
    video_type,
    virtio_model,
)
from defaulter.xml import Element


def add_default_devices(devices: Element, spec: Json) -> None:
    _add_controllers(devices, spec)
    keyboard_bus = {"s390x": "virtio", "arm64": "usb"}.get(architecture(spec))
    channel = xml.add(devices, "channel", type="unix")
    xml.add(channel, "target", type="virtio", name="org.qemu.guest_agent.0")
    if not turned_off(spec, "autoattachSerialConsole"):
        serial = xml.add(devices, "serial", type="unix")
        xml.add(serial, "source", mode="bind", path="/serial")
        xml.add(serial, "target", port="0")
        xml.add(xml.add(devices, "console", type="pty"), "target", type="serial", port="0")
    if not turned_off(spec, "autoattachGraphicsDevice"):
        xml.add(xml.add(devices, "graphics", type="vnc"), "listen", type="socket", socket="/vnc")
        _add_video(devices, spec)
        if keyboard_bus:
            if keyboard_bus == "usb" and devices.find("input[@type='tablet']") is None:
                xml.add(devices, "input", type="tablet", bus="usb")
            xml.add(devices, "input", type="keyboard", bus=keyboard_bus)
    xml.add(devices, "memballoon", model="none" if turned_off(spec, "autoattachMemBalloon") else virtio_model(spec))
    if turned_on(spec, "autoattachVSOCK"):
        xml.add(xml.add(devices, "vsock", model="virtio-non-transitional"), "cid", auto="no", address="3")


def _add_video(devices: Element, spec: Json) -> None:
    video = xml.add(devices, "video")
    model = xml.add(video, "model", type=video_type(spec), heads="1")
    given = walker.list_devices(VIDEO, spec)
    for _, device in given:
        walker.write(VIDEO.fields, device, video)
    if given or model.get("type") == "vga":
        model.set("vram", "16384")


def _add_controllers(devices: Element, spec: Json) -> None:
    xml.add(devices, "controller", type="usb", index="0", model="qemu-xhci" if _needs_usb(devices, spec) else "none")
    if not turned_on(spec, "disableHotplug") or devices.find("disk/target[@bus='scsi']") is not None:
        model = "virtio-scsi" if architecture(spec) == "s390x" else virtio_model(spec)
        xml.add(devices, "controller", type="scsi", index="0", model=model)
    if not turned_off(spec, "autoattachSerialConsole"):
        xml.add(devices, "controller", type="virtio-serial", index="0", model=virtio_model(spec))


def _needs_usb(devices: Element, spec: Json) -> bool:
    if architecture(spec) != "amd64":
        return architecture(spec) == "arm64"
    usb = ("input[@bus='usb']", "disk/target[@bus='usb']")
    return any(devices.find(path) is not None for path in usb) or device_field(spec, "clientPassthrough") is not None


def add_host_devices(root: Element, devices: Element, spec: Json) -> None:
    for index, (name, address) in enumerate(_pci_host_devices(spec)):
        _add_host_device(devices, index, name, address)
    shared = [fs for _, fs in entries(spec, "domain", "devices", "filesystems") if "virtiofs" in fs]
    for filesystem in shared:
        _add_filesystem(devices, str(filesystem.get("name")))
    if shared:
        _share_memory(root, spec)


def _pci_host_devices(spec: Json) -> Iterator[tuple[str, str]]:
    """Alias and explicit address, in KubeVirt's order."""
    for field, prefix in (("hostDevices", "hostdevice"), ("gpus", "gpu")):
        for _, device in entries(spec, "domain", "devices", field):
            yield f"{prefix}-{device.get('name')}", ""
    for _, interface in entries(spec, "domain", "devices", "interfaces"):
        if "sriov" in interface and interface.get("state") != "absent":
            yield f"sriov-{interface.get('name')}", interface.get("pciAddress") or ""


def _add_host_device(devices: Element, index: int, name: str, address: str) -> None:
    device = xml.add(devices, "hostdev", mode="subsystem", type="pci", managed="no")
    # No host has this PCI domain, so libvirt assumes a PCI Express function.
    slot, function = divmod(index, 8)
    place = {"domain": "0xffff", "bus": "0x00", "slot": f"0x{slot % 32:02x}", "function": f"0x{function}"}
    xml.add(xml.add(device, "source"), "address", **place)
    xml.add(device, "alias", name=alias(name))
    if PCI.accepts(address):
        xml.add(device, "address", **pci_attributes(address))


def _add_filesystem(devices: Element, name: str) -> None:
    filesystem = xml.add(devices, "filesystem", type="mount", accessmode="passthrough")
    xml.add(filesystem, "driver", type="virtiofs", queue="1024")
    xml.add(filesystem, "source", socket="/virtiofs")
    xml.add(filesystem, "target", dir=name)


def _share_memory(root: Element, spec: Json) -> None:
    """virtiofs needs memory that another process can map. KubeVirt puts it into one NUMA cell."""
    backing = xml.add(root, "memoryBacking")
    xml.add(backing, "source", type="memfd")
    xml.add(backing, "access", mode="shared")
    cpu = xml.find_or_create(root, "cpu")
    if cpu.find("numa") is None:
        last = int(root.findtext("vcpu") or "1") - 1
        cell = {"id": "0", "cpus": f"0-{last}", "memory": str(memory_bytes(spec) // 1024), "unit": "KiB"}
        xml.add(xml.add(cpu, "numa"), "cell", **cell)
