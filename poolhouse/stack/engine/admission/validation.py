"""Finds what virt-api's validating webhooks refuse, with virt-api's messages and fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds.vm_documents import run_strategy
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.versions import (
    DECLARATIVE_HOTPLUG_VOLUMES,
    PANIC_DEVICES,
    REBOOT_POLICY,
    VIDEO_CONFIG,
)
from poolhouse.stack.engine.admission.mutation import default_vmi

CauseType = Literal["FieldValueInvalid", "FieldValueRequired", "FieldValueNotSupported"]


@dataclass(frozen=True)
class Cause:
    """A cause in the `metav1.Status` of a refusal."""

    message: str
    field: str = ""
    type: CauseType = "FieldValueInvalid"


EMULATED_MACHINES = {"amd64": ("q35*", "pc-q35*"), "arm64": ("virt*",), "s390x": ("s390-ccw-virtio*",)}
RUN_STRATEGIES = ("Halted", "Manual", "Always", "RerunOnFailure", "Once")
RESTRICTED_LABELS = frozenset(
    {
        "kubevirt.io/created-by",
        "kubevirt.io/migrationJobUID",
        "kubevirt.io/nodeName",
        "kubevirt.io/migrationTargetNodeName",
        "kubevirt.io/schedulable",
        "kubevirt.io/install-strategy",
    }
)
"""labels of a VMI that only KubeVirt writes"""
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


def check_vm(vm: Json, settings: ClusterSettings) -> list[Cause]:
    """Returns why virt-api refuses the VM. It checks the spec with the defaults of its VMIs."""
    if vm["metadata"].get("deletionTimestamp"):
        return []
    spec = vm.get("spec") or {}
    template = spec.get("template")
    if not isinstance(template, dict):
        return [Cause("missing virtual machine template.", "spec.template", "FieldValueRequired")]
    inner = default_vmi({"spec": template.get("spec") or {}}, settings)["spec"]
    found = list(_labels((template.get("metadata") or {}).get("labels"), "spec.template.metadata", "creation"))
    if spec.get("instancetype") is None and spec.get("preference") is None:
        found += _spec(inner, "spec.template.spec", settings)
    else:
        found += _instance_type(spec)
    return [*found, *_data_volume_templates(spec), *_run_strategy(spec)]


def check_data_volume_namespaces(old: Json | None, vm: Json, namespace: str) -> list[Cause]:
    """Returns why virt-api refuses dataVolumeTemplates of another namespace than the VM's. `namespace` is that of the
    request. Templates that a change leaves as they are stay valid."""
    templates = typed(list, vm, "spec", "dataVolumeTemplates") or []
    if vm["metadata"].get("deletionTimestamp"):
        return []
    if old is not None and (typed(list, old, "spec", "dataVolumeTemplates") or []) == templates:
        return []
    wanted = vm["metadata"].get("namespace") or namespace
    given = ((index, at(each, "metadata", "namespace")) for index, each in enumerate(templates))
    return [
        Cause(
            f"Embedded DataVolume namespace {found} differs from VM namespace {wanted}",
            f"spec.dataVolumeTemplates[{index}]",
        )
        for index, found in given
        if found and found != wanted
    ]


def check_changed_vm(old: Json, new: Json) -> list[Cause]:
    """Returns why virt-api refuses a change of a VM whose snapshot or restore is in progress."""
    before, after, status = (typed(dict, *each) or {} for each in ((old, "spec"), (new, "spec"), (new, "status")))
    starts = run_strategy(before) != run_strategy(after)
    if (restore := status.get("restoreInProgress")) and starts:
        message = f'Cannot update VM runStrategy until restore "{restore}" completes'
        return [Cause(message, "spec", "FieldValueNotSupported")]
    if snapshot := status.get("snapshotInProgress"):
        if at(before, "template", "spec", "volumes") != at(after, "template", "spec", "volumes"):
            message = f'Cannot update vm disks or volumes until snapshot "{snapshot}" completes'
            return [Cause(message, "spec", "FieldValueNotSupported")]
        if starts:
            message = f'Cannot update vm running state until snapshot "{snapshot}" completes'
            return [Cause(message, "spec", "FieldValueNotSupported")]
    return []


def check_snapshot(old: Json | None, new: Json, field: Literal["source", "target"]) -> list[Cause]:
    """Returns why virt-api refuses a VirtualMachineSnapshot with its source, or a VirtualMachineRestore with its
    target."""
    if old is not None:
        changed = old.get("spec") != new.get("spec")
        return [Cause("spec in immutable after creation", "spec")] if changed else []
    named = typed(dict, new, "spec", field) or {}
    if named.get("apiGroup") is None:
        return [Cause("missing apiGroup", f"spec.{field}.apiGroup")]
    if named["apiGroup"] != "kubevirt.io":
        return [Cause("invalid apiGroup", f"spec.{field}.apiGroup")]
    return [Cause("invalid kind", f"spec.{field}.kind")] if named.get("kind") != "VirtualMachine" else []


def check_new_vmi(vmi: Json, settings: ClusterSettings, *, by_kubevirt: bool) -> list[Cause]:
    spec = vmi.get("spec") or {}
    found = [*_spec(spec, "spec", settings), *_volumes_without_disk(spec), *_memory_given(spec)]
    return found if by_kubevirt else [*found, *_labels(vmi["metadata"].get("labels"), "metadata", "creation")]


def check_changed_vmi(old: Json, new: Json, *, by_kubevirt: bool) -> list[Cause]:
    """Returns why virt-api refuses the change. Only KubeVirt may change the spec or the labels that it writes."""
    if by_kubevirt:
        return []
    if old.get("spec") != new.get("spec"):
        return [Cause("update of VMI object is restricted", type="FieldValueNotSupported")]
    before, after = (_restricted(typed(dict, each, "metadata", "labels")) for each in (old, new))
    if before != after:
        message = "modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited"
        return [Cause(message, type="FieldValueNotSupported")]
    return []


def _restricted(labels: Json | None) -> Json:
    return {key: value for key, value in (labels or {}).items() if key in RESTRICTED_LABELS}


def _labels(labels: Json | None, field: str, verb: str) -> Iterator[Cause]:
    if _restricted(labels):
        message = f"{verb} of the following reserved kubevirt.io/ labels on a VMI object is prohibited"
        yield Cause(message, f"{field}.labels", "FieldValueNotSupported")


def _run_strategy(spec: Json) -> Iterator[Cause]:
    running, strategy = spec.get("running"), spec.get("runStrategy")
    if running is not None and strategy is not None:
        message = "Running and RunStrategy are mutually exclusive. Note that Running is deprecated"
        yield Cause(f"{message}, please use RunStrategy instead", "spec.running")
    if running is None and strategy is None:
        yield Cause("RunStrategy must be specified", "spec.running")
    if strategy is not None and strategy not in RUN_STRATEGIES:
        yield Cause(f"Invalid RunStrategy ({strategy})", "spec.runStrategy")


def _instance_type(spec: Json) -> Iterator[Cause]:
    """A field that an instance type decides must not be in the template."""
    if spec.get("instancetype") is None:
        return
    domain, path = at(spec, "template", "spec", "domain") or {}, "spec.template.spec.domain"
    fields: list[tuple[str, ...]] = [("cpu", "sockets"), ("cpu", "cores"), ("cpu", "threads"), ("memory", "guest")]
    fields += [("resources", kind, name) for kind in ("requests", "limits") for name in ("cpu", "memory")]
    if conflicts := ", ".join(".".join((path, *field)) for field in fields if at(domain, *field)):
        yield Cause(f"VM field(s) {conflicts} conflicts with selected instance type", conflicts)


def _data_volume_templates(spec: Json) -> Iterator[Cause]:
    volumes = at(spec, "template", "spec", "volumes") or ()
    used = {at(each, "dataVolume", "name") or at(each, "persistentVolumeClaim", "claimName") for each in volumes}
    for index, template in enumerate(spec.get("dataVolumeTemplates") or ()):
        field = f"spec.dataVolumeTemplate[{index}]"
        if cause := _data_volume(template, field):
            yield cause
        elif at(template, "metadata", "name") not in used:
            message = f"DataVolumeTemplate entry {field} must be referenced in the VMI template's 'volumes' list"
            yield Cause(message, field, type="FieldValueRequired")


def _data_volume(template: Json, field: str) -> Cause | None:
    """The first error of a template, as `validateDataVolume` of KubeVirt 1.8 finds it."""
    if not at(template, "metadata", "name"):
        message = f"'name' field must not be empty for DataVolumeTemplate entry {field}.name."
        return Cause(message, f"{field}.name", type="FieldValueRequired")
    spec = template.get("spec") or {}
    targets = [spec[key] for key in ("pvc", "storage") if spec.get(key) is not None]
    if not targets:
        return Cause("Missing Data volume PVC or Storage", f"{field}.PVC.Storage")
    if len(targets) > 1:
        message = "Duplicate storage definition, both target storage and target pvc defined"
        return Cause(message, f"{field}.PVC.Storage")
    populated = any(at(targets[0], key) is not None for key in ("dataSourceRef", "dataSource"))
    given = any(spec.get(key) is not None for key in ("source", "sourceRef"))
    if populated and given:
        return Cause("External population is incompatible with Source and SourceRef", f"{field}.source")
    if not populated and not given:
        message = "Data volume should have either Source, SourceRef, or be externally populated"
        return Cause(message, f"{field}.source.sourceRef")
    if (source := spec.get("source")) is None:
        return None
    sources = sum(value is not None for value in source.values())
    if sources == 1:
        return None
    return Cause("Multiple dataVolume sources" if sources else "Missing dataVolume valid source", f"{field}.source")


def _memory_given(spec: Json) -> Iterator[Cause]:
    domain = spec.get("domain") or {}
    memory = domain.get("memory") or {}
    if not (at(domain, "resources", "requests", "memory") or memory.get("guest") or memory.get("hugepages")):
        paths = "'spec.domain.memory.guest', 'spec.domain.memory.hugepages.pageSize' or"
        message = f"no memory requested, at least one of {paths} 'spec.domain.resources.requests.memory' must be set"
        yield Cause(message, type="FieldValueRequired")


def _volumes_without_disk(spec: Json) -> Iterator[Cause]:
    devices = at(spec, "domain", "devices") or {}
    named = {each.get("name") for kind in ("disks", "filesystems") for each in devices.get(kind) or ()}
    for index, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("name") not in named and volume.get("memoryDump") is None:
            field = f"spec.domain.volumes[{index}].name"
            yield Cause(f"{field} '{volume.get('name')}' not found.", field)


# Rules of a VMI spec, which the specs of VMs share


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


def _spec(spec: Json, field: str, settings: ClusterSettings) -> list[Cause]:
    return [cause for rule in RULES for cause in rule(spec, field, settings)]


def _bytes(quantity: Any) -> int:
    return (to_int(str(quantity)) if quantity is not None else None) or 0
