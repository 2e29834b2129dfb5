"""The devices that KubeVirt gives a VM without being asked, each of which takes a place that others then don't."""

from __future__ import annotations

from defaulter import walker, xml
from defaulter.facts import architecture, device_field, turned_off, turned_on, video_type, virtio_model
from defaulter.fields import VIDEO
from defaulter.paths import Json
from defaulter.xml import Element


def add(devices: Element, spec: Json) -> None:
    _controllers(devices, spec)
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
        _video(devices, spec)
        if keyboard_bus:
            if keyboard_bus == "usb" and devices.find("input[@type='tablet']") is None:
                xml.add(devices, "input", type="tablet", bus="usb")
            xml.add(devices, "input", type="keyboard", bus=keyboard_bus)
    xml.add(devices, "memballoon", model="none" if turned_off(spec, "autoattachMemBalloon") else virtio_model(spec))
    if turned_on(spec, "autoattachVSOCK"):
        xml.add(xml.add(devices, "vsock", model="virtio-non-transitional"), "cid", auto="no", address="3")


def _video(devices: Element, spec: Json) -> None:
    video = xml.add(devices, "video")
    model = xml.add(video, "model", type=video_type(spec), heads="1")
    given = walker.listed(VIDEO, spec)
    for _, device in given:
        walker.write(VIDEO.rows, device, video)
    if given or model.get("type") == "vga":
        model.set("vram", "16384")


def _controllers(devices: Element, spec: Json) -> None:
    xml.add(devices, "controller", type="usb", index="0", model="qemu-xhci" if _usb(devices, spec) else "none")
    if not turned_on(spec, "disableHotplug") or devices.find("disk/target[@bus='scsi']") is not None:
        model = "virtio-scsi" if architecture(spec) == "s390x" else virtio_model(spec)
        xml.add(devices, "controller", type="scsi", index="0", model=model)
    if not turned_off(spec, "autoattachSerialConsole"):
        xml.add(devices, "controller", type="virtio-serial", index="0", model=virtio_model(spec))


def _usb(devices: Element, spec: Json) -> bool:
    if architecture(spec) != "amd64":
        return architecture(spec) == "arm64"
    usb = ("input[@bus='usb']", "disk/target[@bus='usb']")
    return any(devices.find(path) is not None for path in usb) or device_field(spec, "clientPassthrough") is not None
