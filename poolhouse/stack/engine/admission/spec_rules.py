"""The rules by which virt-api's validating webhooks refuse a VMI spec, with its messages and fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.versions import (
    DECLARATIVE_HOTPLUG_VOLUMES,
    PANIC_DEVICES,
    REBOOT_POLICY,
    VIDEO_CONFIG,
)

CauseType = Literal["FieldValueInvalid", "FieldValueRequired", "FieldValueNotSupported"]


@dataclass(frozen=True)
class Cause:
    """A cause in the `metav1.Status` of a refusal."""

    message: str
    field: str = ""
    type: CauseType = "FieldValueInvalid"


EMULATED_MACHINES = {"amd64": ("q35*", "pc-q35*"), "arm64": ("virt*",), "s390x": ("s390-ccw-virtio*",)}
BUSES = ("virtio", "scsi", "sata", "usb")
TARGETS = ("disk", "lun", "cdrom")
SERIAL_LENGTH = 256
PCI_ADDRESS = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")
INTERFACE_NAME = re.compile(r"[A-Za-z0-9-_]+")
NETWORK_SOURCES = ("pod", "multus", "resourceClaim")
VOLUME_SOURCES = (
    "persistentVolumeClaim",
    "sysprep",
    "cloudInitNoCloud",
    "cloudInitConfigDrive",
    "containerDisk",
    "ephemeral",
    "emptyDisk",
    "hostDisk",
    "dataVolume",
    "configMap",
    "secret",
    "downwardAPI",
    "serviceAccount",
    "downwardMetrics",
    "memoryDump",
    "containerPath",
)
PROBE_HANDLERS = ("httpGet", "tcpSocket", "exec", "guestAgentPing")


def _machine(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    machine = at(spec, "domain", "machine", "type")
    architecture = str(spec.get("architecture") or "amd64")
    patterns = settings.emulated_machines.get(architecture) or EMULATED_MACHINES.get(architecture, ())
    if machine and not any(fnmatchcase(machine, pattern) for pattern in patterns):
        path = f"{field}.domain.machine.type"
        yield Cause(f"{path} is not supported: {machine} (allowed values: [{' '.join(patterns)}])", path)


def _resources(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    resources = at(spec, "domain", "resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    path = f"{field}.domain.resources"
    for name in ("cpu", "memory"):
        for kind, values in (("requests", requests), ("limits", limits)):
            if str(values.get(name) or "").startswith("-"):
                where = f"{path}.{kind}.{name}"
                yield Cause(f"{where} '{values[name]}': must be greater than or equal to 0.", where)
    memory, limit = _bytes(requests.get("memory")), _bytes(limits.get("memory"))
    if memory and memory < 1_000_000:
        where = f"{path}.requests.memory"
        yield Cause(f"{where} '{requests['memory']}': must be greater than or equal to 1M.", where)
    if limit and memory > limit:
        where = f"{path}.requests.memory"
        yield Cause(f"{where} '{requests['memory']}' is greater than {path}.limits.memory '{limits['memory']}'", where)


def _processors(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    cpu, path = at(spec, "domain", "cpu") or {}, f"{field}.domain.cpu"
    if cpu.get("maxSockets") and (cpu.get("sockets") or 0) > cpu["maxSockets"]:
        message = "Number of sockets in CPU topology is greater than the maximum sockets allowed"
        yield Cause(message, f"{path}.sockets")
    for index, feature in enumerate(cpu.get("features") or ()):
        policy = feature.get("policy") or ""
        if policy not in ("", "force", "require", "optional", "disable", "forbid"):
            message = f"CPU feature {feature.get('name')} uses policy {policy} that is not supported."
            yield Cause(message, f"{path}.features[{index}].policy", "FieldValueNotSupported")


def _firmware(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    domain, path = spec.get("domain") or {}, f"{field}.domain"
    bootloader = at(domain, "firmware", "bootloader") or {}
    efi, smm = bootloader.get("efi"), at(domain, "features", "smm")
    if efi is not None and bootloader.get("bios") is not None:
        where = f"{path}.firmware.bootloader"
        yield Cause(f"{where} has both EFI and BIOS configured, but they are mutually exclusive.", where)
    secure = efi is not None and efi.get("secureBoot") is not False
    if secure and (smm is None or smm.get("enabled") is False):
        message = "has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled."
        yield Cause(f"{path} {message}", path)


def _disks(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    disks, path = at(spec, "domain", "devices", "disks") or (), f"{field}.domain.devices.disks"
    seen: dict[Any, int] = {}
    for index, disk in enumerate(disks):
        here, name = f"{path}[{index}]", disk.get("name")
        if name in seen:
            yield Cause(f"{here} and {path}[{seen[name]}] must not have the same Name.", f"{here}.name")
        seen.setdefault(name, index)
        targets = [target for target in TARGETS if disk.get(target) is not None]
        if len(targets) > 1:
            yield Cause(f"{here} can only have a single target type defined", here)
        yield from _disk_bus(disk, targets, here, path, index)
        serial = str(disk.get("serial") or "")
        if serial and not re.fullmatch(r"[A-Za-z0-9_.+-]+", serial):
            message = "must be made up of the following characters [A-Za-z0-9_.+-], if specified"
            yield Cause(f"{here} {message}", f"{here}.serial")
        if len(serial) > SERIAL_LENGTH:
            message = f"must be less than or equal to {SERIAL_LENGTH} in length, if specified"
            yield Cause(f"{here} {message}", f"{here}.serial")


def _disk_bus(disk: Json, targets: list[str], here: str, path: str, index: int) -> Iterator[Cause]:
    if not targets:
        return
    target = disk[targets[0]]
    bus = target.get("bus") or ""
    address = at(disk, "disk", "pciAddress")
    if address and bus != "virtio":
        named = f"{path}.domain.devices.disks.disk[{index}].name"
        message = f"disk {named} - setting a PCI address is only possible with bus type virtio."
        yield Cause(message, f"{path}.domain.devices.disks.disk[{index}].pciAddress")
    if address and not PCI_ADDRESS.fullmatch(str(address)):
        named = f"{path}.domain.devices.disks.disk[{index}].name"
        message = f"disk {named} has malformed PCI address ({address})."
        yield Cause(message, f"{path}.domain.devices.disks.disk[{index}].pciAddress")
    where = f"{here}.{targets[0]}.bus"
    if bus == "ide":
        yield Cause("IDE bus is not supported", where)
    elif bus == "virtio" and targets[0] == "cdrom":
        yield Cause("Bus type virtio is invalid for CD-ROM device", where)
    elif bus == "sata" and targets[0] == "disk" and target.get("readonly"):
        yield Cause("sata hard-disks do not support read-only.", where)
    elif bus and bus not in BUSES:
        yield Cause(f"{here} is set with an unrecognized bus {bus}, must be one of: [{' '.join(BUSES)}]", where)


def _disks_and_volumes(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    devices, path = at(spec, "domain", "devices") or {}, f"{field}.domain.devices"
    for index, disk in enumerate(devices.get("disks") or ()):
        where = f"{path}.disks[{index}].name"
        empty = disk.get("name") not in volumes
        if empty and disk.get("cdrom") is None:
            yield Cause(f"{path}.disks[{index}].Name '{disk.get('name')}' not found.", where)
        elif empty and not settings.enables(DECLARATIVE_HOTPLUG_VOLUMES):
            gate = DECLARATIVE_HOTPLUG_VOLUMES.name
            yield Cause(f"{gate} feature gate not enabled, cannot define an empty CD-ROM disk", where)
    yield from _boot_orders(devices, path)


def _boot_orders(devices: Json, path: str) -> Iterator[Cause]:
    orders: set[int] = set()
    for kind in ("disks", "interfaces"):
        for index, device in enumerate(devices.get(kind) or ()):
            order, here = device.get("bootOrder"), f"{path}.{kind}[{index}].bootOrder"
            if order is not None and order < 1:
                yield Cause(f"{path}.{kind}[{index}] must have a boot order > 0, if supplied", here)
            elif order in orders:
                yield Cause(f"Boot order for {here} already set for a different device.", here)
            if order is not None:
                orders.add(order)


def _volumes(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    seen: dict[Any, int] = {}
    for index, volume in enumerate(spec.get("volumes") or ()):
        here, name = f"{field}.volumes[{index}]", volume.get("name")
        if name in seen:
            yield Cause(f"{here} and {field}.volumes[{seen[name]}] must not have the same Name.", f"{here}.name")
        seen.setdefault(name, index)
        if sum(volume.get(source) is not None for source in VOLUME_SOURCES) != 1:
            yield Cause(f"{here} must have exactly one source type set", here)


def _networks(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    networks, path = spec.get("networks") or (), f"{field}.networks"
    names = [each.get("name") for each in networks]
    interfaces = at(spec, "domain", "devices", "interfaces") or ()
    plugged = [each.get("name") for each in interfaces]
    if sum(each.get("pod") is not None for each in networks) > 1:
        where = f"{field}.interfaces"
        yield Cause(f"more than one interface is connected to a pod network in {where}", where)
    for index, network in enumerate(networks):
        name, sources = network.get("name"), sum(network.get(each) is not None for each in NETWORK_SOURCES)
        if sources != 1:
            yield Cause(f"should have {'a' if not sources else 'only one'} network type", f"{path}[{index}]")
        if name in names[:index]:
            message = f'Network with name "{name}" already exists, every network must have a unique name'
            yield Cause(message, f"{path}[{index}].name")
        if name not in plugged:
            yield Cause(f"{path}[{index}].name '{name}' not found.", f"{path}[{index}].name", "FieldValueRequired")
    for index, interface in enumerate(interfaces):
        yield from _interface(interface, f"{field}.domain.devices.interfaces[{index}]", names, plugged[:index])


def _interface(interface: Json, here: str, networks: list[Any], before: list[Any]) -> Iterator[Cause]:
    name, address = interface.get("name"), interface.get("pciAddress")
    if name not in networks:
        yield Cause(f"{here}.name '{name}' not found.", f"{here}.name")
    if name in before:
        yield Cause("Only one interface can be connected to one specific network", f"{here}.name")
    if not INTERFACE_NAME.fullmatch(str(name)):
        message = "Network interface name can only contain alphabetical characters, numbers"
        yield Cause(f"{message}, dashes (-) or underscores (_)", f"{here}.name")
    if address and not PCI_ADDRESS.fullmatch(str(address)):
        yield Cause(f"interface {here}.name has malformed PCI address ({address}).", f"{here}.pciAddress")


GATED = (
    (
        ("domain", "devices", "video"),
        VIDEO_CONFIG,
        "Video configuration is specified but the VideoConfig feature gate is not enabled",
        "video",
    ),
    (
        ("domain", "devices", "panicDevices"),
        PANIC_DEVICES,
        "Panic Devices feature gate is not enabled in kubevirt-config",
        "domain.devices.panicDevices",
    ),
    (
        ("domain", "rebootPolicy"),
        REBOOT_POLICY,
        "RebootPolicy is specified but the RebootPolicy feature gate is not enabled",
        "domain.rebootPolicy",
    ),
)
"""fields that KubeVirt accepts with a feature gate, its message, and the field that the message names"""


def _devices(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    devices, path = at(spec, "domain", "devices") or {}, f"{field}.domain.devices"
    for names, gate, message, where in GATED:
        if at(spec, *names) not in (None, []) and not settings.enables(gate):
            yield Cause(message, f"{field}.{where}")
    gated = devices.get("video") is None or not settings.enables(VIDEO_CONFIG)
    if not gated and devices.get("autoattachGraphicsDevice") is False:
        message = "Video configuration is not allowed when autoattachGraphicsDevice is set to false"
        yield Cause(message, f"{field}.video")
    for index, device in enumerate(devices.get("inputs") or ()):
        if device.get("bus") not in (None, "", "usb", "virtio"):
            yield Cause("Input device can have only virtio or usb bus.", f"{path}.inputs[{index}].bus")
        if device.get("type") != "tablet":
            yield Cause("Input device can have only tablet type.", f"{path}.inputs[{index}].type")
    sound = devices.get("sound")
    if sound is not None and sound.get("model") not in (None, "", "ich9", "ac97"):
        yield Cause("Sound device type is not supported. Options: 'ich9' or 'ac97'", f"{field}.Sound")
    if sound is not None and not sound.get("name"):
        yield Cause("Sound device requires a name field.", f"{field}.Sound")


def _probes(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    for kind in ("readinessProbe", "livenessProbe"):
        probe, here = spec.get(kind), f"{field}.{kind}"
        if probe is None:
            continue
        handlers = [handler for handler in PROBE_HANDLERS if probe.get(handler) is not None]
        if len(handlers) > 1:
            yield Cause(f"{here} must have exactly one probe type set", here)
        if not handlers:
            message = f"either {here}.tcpSocket, {here}.exec or {here}.httpGet must be set if a {here} is specified"
            yield Cause(message, here, "FieldValueRequired")


def _strategies(spec: Json, field: str, settings: ClusterSettings) -> Iterator[Cause]:
    eviction, start = spec.get("evictionStrategy"), spec.get("startStrategy")
    if eviction not in (None, "LiveMigrate", "LiveMigrateIfPossible", "None", "External"):
        where = f"{field}.evictionStrategy"
        yield Cause(f"{where} is set with an unrecognized option: {eviction}", where)
    if start not in (None, "Paused"):
        where = f"{field}.startStrategy"
        yield Cause(f"{where} is set with an unrecognized option: {start}", where)
    elif start == "Paused" and spec.get("livenessProbe") is not None:
        where = f"{field}.startStrategy"
        message = "should be provided.Pausing VMI with LivenessProbe is not supported"
        yield Cause(f"either {where} or {field}.livenessProbe {message}", where)


Rule = Callable[[Json, str, ClusterSettings], Iterator[Cause]]
RULES: tuple[Rule, ...] = (
    _resources,
    _machine,
    _processors,
    _strategies,
    _networks,
    _disks_and_volumes,
    _probes,
    _disks,
    _firmware,
    _volumes,
    _devices,
)


def check_spec(spec: Json, field: str, settings: ClusterSettings) -> list[Cause]:
    return [cause for rule in RULES for cause in rule(spec, field, settings)]


def _bytes(quantity: Any) -> int:
    return (to_int(str(quantity)) if quantity is not None else None) or 0
