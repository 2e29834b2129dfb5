"""Builds the domain that virt-launcher would define for a VMI spec.

Sources, sockets and firmware files are placeholders, which libvirt does not open. PVCs, networks, Secrets and paths
therefore need not exist. The spec must be valid (`validation`).
"""

from collections.abc import Iterator

from defaulter import walker, xml
from defaulter.codecs import PCI, pci_attributes
from defaulter.fields import ARCHITECTURES, CPU_FEATURES, DEVICES, DOMAIN, INTERFACES, VIDEO, DeviceList
from defaulter.machine_types import ALIASES
from defaulter.vmi_spec import (
    DEFAULT_MEMORY_BYTES,
    alias,
    architecture,
    default_bus,
    device_field,
    disk_kind,
    has_efi,
    is_emulated,
    memory_bytes,
    turned_off,
    turned_on,
    video_type,
    virtio_model,
)
from defaulter.xml import Element
from poolhouse.api.apimachinery.unstructured import Json, at, entries

NAME = "defaulting"
USB_REDIRECTIONS = 4
"""USB devices that a client can redirect to a VM with `clientPassthrough`"""
PLACEHOLDER_UUID = "00000000-0000-4000-8000-000000000001"
"""UUID of a domain whose spec has none: all defines of a domain need the same UUID"""


def build(spec: Json, usb_resources: frozenset[str] = frozenset()) -> Element:
    """The domain of a VMI spec. `usb_resources` names the host devices on USB; others are PCI functions."""
    root = xml.element("domain", type="qemu")
    xml.add(root, "name", NAME)
    walker.write(DOMAIN, spec, root)
    if root.find("uuid") is None:
        xml.add(root, "uuid", PLACEHOLDER_UUID)
    _operating_system(root, spec)
    _processors(root, spec)
    devices = xml.add(root, "devices")
    for kind in DEVICES:
        if kind not in (CPU_FEATURES, VIDEO):
            for _, device in walker.list_devices(kind, spec):
                if kind is not INTERFACES or is_emulated(device):
                    add_device(devices, kind, device, spec)
    _disk_targets(devices, spec)
    _add_host_devices(root, devices, spec, usb_resources)
    _add_default_devices(devices, spec)
    return root


def add_device(devices: Element, kind: DeviceList, device: Json, spec: Json) -> Element:
    element = xml.add(devices, kind.element.rsplit("/", 1)[1])
    walker.write(kind.fields, device, element)
    if kind.has_alias and isinstance(device.get("name"), str):
        xml.add(element, "alias", name=alias(device["name"]))
    complete = _COMPLETE.get(element.tag)
    if complete is not None:
        complete(element, device, spec)
    return element


def _operating_system(root: Element, spec: Json) -> None:
    kind = xml.find_or_create(root, "os/type")
    kind.text = "hvm"
    arch = architecture(spec)
    kind.set("arch", ARCHITECTURES[arch])
    if kind.get("machine") is None:
        kind.set("machine", ALIASES[arch])
    memory = xml.find_or_create(root, "memory")
    if not memory.text:
        memory.set("unit", "b")
        memory.text = str(DEFAULT_MEMORY_BYTES)
    operating_system = kind.getparent()
    assert operating_system is not None
    if has_efi(spec):
        _efi(operating_system, arch)
    if arch != "s390x":
        sysinfo = xml.find_or_create(root, "sysinfo")
        sysinfo.set("type", "smbios")
        xml.add(operating_system, "smbios", mode="sysinfo")
    elif (sysinfo_there := root.find("sysinfo")) is not None:
        root.remove(sysinfo_there)
    features = xml.find_or_create(root, "features")
    if at(spec, "domain", "features", "acpi") is None and arch != "s390x":
        xml.add(features, "acpi")
    if arch == "amd64":
        xml.add(features, "vmport", state="off")
    clock = root.find("clock")
    if clock is not None and clock.get("offset") is None:
        clock.set("offset", "utc")


def _efi(operating_system: Element, arch: str) -> None:
    loader = xml.find_or_create(operating_system, "loader")
    loader.attrib.update({"readonly": "yes", "type": "pflash"})
    loader.text = f"/firmware/{arch}/code.fd"
    xml.add(operating_system, "nvram", "/firmware/vars.fd", template=f"/firmware/{arch}/vars.fd")


def _processors(root: Element, spec: Json) -> None:
    topology = xml.find_or_create(root, "cpu/topology")
    cpu = topology.getparent()
    assert cpu is not None
    most = at(spec, "domain", "cpu", "maxSockets")
    enabled = _product(topology)
    if isinstance(most, int) and most > int(topology.get("sockets", "1")) and architecture(spec) != "arm64":
        topology.set("sockets", str(most))
    vcpu = xml.add(root, "vcpu", str(_product(topology)), placement="static")
    if _product(topology) != enabled:
        vcpu.set("current", str(enabled))
    features = [device for _, device in walker.list_devices(CPU_FEATURES, spec)]
    for feature in features:
        walker.write(CPU_FEATURES.fields, feature, xml.add(cpu, "feature"))
    if cpu.get("mode") == "custom":
        cpu.set("match", "exact")
        if architecture(spec) == "amd64" and not any(feature.get("name") == "mpx" for feature in features):
            xml.add(cpu, "feature", name="mpx", policy="disable")


def _product(topology: Element) -> int:
    return int(topology.get("sockets", "1")) * int(topology.get("cores", "1")) * int(topology.get("threads", "1"))


def _disk(element: Element, device: Json, spec: Json) -> None:
    kind = disk_kind(device) or "disk"
    element.set("device", kind)
    element.set("type", "block" if kind == "lun" else "file")
    volumes = {volume.get("name") for _, volume in entries(spec.get("volumes"))}
    if kind != "cdrom" or device.get("name") in volumes:
        xml.add(element, "source", **{"dev" if kind == "lun" else "file": "/source"})
    target = xml.find_or_create(element, "target")
    if target.get("bus") is None:
        target.set("bus", default_bus(architecture(spec)))
    if target.get("bus") == "virtio" and kind == "disk":
        element.set("model", virtio_model(spec))
    driver = xml.find_or_create(element, "driver")
    driver.attrib.update({"name": "qemu", "type": "raw"})


def _disk_targets(devices: Element, spec: Json) -> None:
    """Names the disks of each bus in spec order, and gives SCSI disks the unit of the same number."""
    counts = {"vd": 0, "sd": 0}
    for disk in devices.iterfind("disk"):
        target = disk.find("target")
        assert target is not None
        prefix = "vd" if target.get("bus") == "virtio" else "sd"
        index, counts[prefix] = counts[prefix], counts[prefix] + 1
        target.set("dev", prefix + drive_letters(index))
        # KubeVirt leaves the unit of a CD-ROM drive to libvirt.
        if target.get("bus") == "scsi" and disk.get("device") != "cdrom":
            xml.add(disk, "address", type="drive", controller="0", bus="0", unit=str(index))


def drive_letters(index: int) -> str:
    """The letters of a disk's name in the Linux kernel: a to z, then aa, ab, ..."""
    name = ""
    while index >= 0:
        name = chr(ord("a") + index % 26) + name
        index = index // 26 - 1
    return name


def _interface(element: Element, device: Json, spec: Json) -> None:
    element.set("type", "ethernet")
    model = xml.find_or_create(element, "model")
    if model.get("type") == "virtio":
        model.set("type", virtio_model(spec))
    if architecture(spec) != "s390x" and not device.get("bootOrder"):
        xml.add(element, "rom", enabled="no")


def _input(element: Element, device: Json, spec: Json) -> None:
    if element.get("bus") == "virtio":
        element.set("model", "virtio")


def _tpm(element: Element, device: Json, spec: Json) -> None:
    """Configures a TPM whose backend, unlike KubeVirt's, needs no emulator on this host. Guests see no difference."""
    element.set("model", "tpm-crb" if device.get("persistent") is True else "tpm-tis")
    xml.add(xml.add(element, "backend", type="passthrough"), "device", path="/tpm")


def _rng(element: Element, device: Json, spec: Json) -> None:
    element.set("model", virtio_model(spec))
    xml.add(element, "backend", "/dev/urandom", model="random")


_COMPLETE = {"disk": _disk, "interface": _interface, "input": _input, "tpm": _tpm, "rng": _rng}


# KubeVirt adds these devices to every domain, and each takes an address. A placeholder takes the address of a host
# device, because only a node has the device.


def _add_default_devices(devices: Element, spec: Json) -> None:
    add_controllers(devices, spec)
    if device_field(spec, "clientPassthrough") is not None:
        for index in range(USB_REDIRECTIONS):
            redirection = xml.add(devices, "redirdev", type="unix", bus="usb")
            xml.add(redirection, "source", mode="bind", path=f"/usbredir-{index}")
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
        add_video(devices, spec)
        if keyboard_bus:
            if keyboard_bus == "usb" and devices.find("input[@type='tablet']") is None:
                xml.add(devices, "input", type="tablet", bus="usb")
            xml.add(devices, "input", type="keyboard", bus=keyboard_bus)
    xml.add(devices, "memballoon", model="none" if turned_off(spec, "autoattachMemBalloon") else virtio_model(spec))
    if turned_on(spec, "autoattachVSOCK"):
        xml.add(xml.add(devices, "vsock", model="virtio-non-transitional"), "cid", auto="no", address="3")


def add_video(devices: Element, spec: Json) -> None:
    video = xml.add(devices, "video")
    model = xml.add(video, "model", type=video_type(spec), heads="1")
    given = walker.list_devices(VIDEO, spec)
    for _, device in given:
        walker.write(VIDEO.fields, device, video)
    if given or model.get("type") == "vga":
        model.set("vram", "16384")


def add_controllers(devices: Element, spec: Json) -> None:
    """Adds the controllers that the devices need, or that a hotplug may need."""
    xml.add(devices, "controller", type="usb", index="0", model="qemu-xhci" if _needs_usb(devices, spec) else "none")
    if not turned_on(spec, "disableHotplug") or devices.find("disk/target[@bus='scsi']") is not None:
        model = "virtio-scsi" if architecture(spec) == "s390x" else virtio_model(spec)
        xml.add(devices, "controller", type="scsi", index="0", model=model)
    if not turned_off(spec, "autoattachSerialConsole"):
        xml.add(devices, "controller", type="virtio-serial", index="0", model=virtio_model(spec))


def _needs_usb(devices: Element, spec: Json) -> bool:
    if architecture(spec) != "amd64":
        return architecture(spec) == "arm64"
    usb = ("input[@bus='usb']", "disk[@device='disk']/target[@bus='usb']", "hostdev[@type='usb']")
    return any(devices.find(path) is not None for path in usb) or device_field(spec, "clientPassthrough") is not None


def _add_host_devices(root: Element, devices: Element, spec: Json, usb_resources: frozenset[str]) -> None:
    for index, (name, address) in enumerate(_pci_host_devices(spec, usb_resources)):
        _add_host_device(devices, index, name, address)
    for index, device in entries(spec, "domain", "devices", "hostDevices"):
        if device.get("deviceName") in usb_resources:
            _add_usb_device(devices, index, str(device.get("name")))
    shared = [fs for _, fs in entries(spec, "domain", "devices", "filesystems") if fs.get("virtiofs") is not None]
    for filesystem in shared:
        _add_filesystem(devices, str(filesystem.get("name")))
    if shared:
        _share_memory(root, spec)


def _pci_host_devices(spec: Json, usb_resources: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Alias and explicit address of each PCI function of a host, in KubeVirt's order."""
    for field, prefix in (("hostDevices", "hostdevice"), ("gpus", "gpu")):
        for _, device in entries(spec, "domain", "devices", field):
            if field == "gpus" or device.get("deviceName") not in usb_resources:
                yield f"{prefix}-{device.get('name')}", ""
    for _, interface in entries(spec, "domain", "devices", "interfaces"):
        if interface.get("sriov") is not None and interface.get("state") != "absent":
            yield f"sriov-{interface.get('name')}", interface.get("pciAddress") or ""


def _add_host_device(devices: Element, index: int, name: str, address: str) -> None:
    device = xml.add(devices, "hostdev", mode="subsystem", type="pci", managed="no")
    # libvirt assumes a PCI Express function, because no host has this PCI domain.
    slot, function = divmod(index, 8)
    place = {"domain": "0xffff", "bus": "0x00", "slot": f"0x{slot % 32:02x}", "function": f"0x{function}"}
    xml.add(xml.add(device, "source"), "address", **place)
    xml.add(device, "alias", name=alias(name))
    if PCI.accepts(address):
        xml.add(device, "address", **pci_attributes(address))


def _add_usb_device(devices: Element, index: int, name: str) -> None:
    device = xml.add(devices, "hostdev", mode="subsystem", type="usb", managed="no")
    xml.add(xml.add(device, "source"), "address", bus="1", device=str(index + 1))
    xml.add(device, "alias", name=alias(f"usb-host-{name}"))


def _add_filesystem(devices: Element, name: str) -> None:
    filesystem = xml.add(devices, "filesystem", type="mount", accessmode="passthrough")
    xml.add(filesystem, "driver", type="virtiofs", queue="1024")
    xml.add(filesystem, "source", socket="/virtiofs")
    xml.add(filesystem, "target", dir=name)


def _share_memory(root: Element, spec: Json) -> None:
    """Makes the memory shared, which virtiofs needs, in one NUMA cell like KubeVirt."""
    backing = xml.add(root, "memoryBacking")
    xml.add(backing, "source", type="memfd")
    xml.add(backing, "access", mode="shared")
    cpu = xml.find_or_create(root, "cpu")
    if cpu.find("numa") is None:
        last = int(root.findtext("vcpu") or "1") - 1
        cell = {"id": "0", "cpus": f"0-{last}", "memory": str(memory_bytes(spec) // 1024), "unit": "KiB"}
        xml.add(xml.add(cpu, "numa"), "cell", **cell)
