"""Applies an instance type and a preference to a VMI spec, as KubeVirt does when it starts a VM.

An instance type sets CPU, memory and host devices, which the VM must leave unset. A preference fills what the VM leaves
unset, and overrides two fields: `disableHotplug` and `features.acpi`. The rules are those of KubeVirt 1.9 for
`instancetype.kubevirt.io/v1beta1`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from defaulter.json_paths import DocumentEditor, Path, is_unset, parse_path
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed


@dataclass(frozen=True)
class MatchedSpecs:
    """The specs of the instance type and of the preference that a VM names."""

    instancetype: Json | None = None
    preference: Json | None = None


_DEVICE_PREFERENCES = {
    "preferredUseVirtioTransitional": "useVirtioTransitional",
    "preferredBlockMultiQueue": "blockMultiQueue",
    "preferredNetworkInterfaceMultiQueue": "networkInterfaceMultiqueue",
    "preferredRng": "rng",
    "preferredTPM": "tpm",
    "preferredVideoType": "video.type",
}
_ATTACHED = ("GraphicsDevice", "MemBalloon", "PodInterface", "SerialConsole", "InputDevice")
_FEATURE_PREFERENCES = {
    "preferredApic": "apic",
    "preferredKvm": "kvm",
    "preferredPvspinlock": "pvspinlock",
    "preferredSmm": "smm",
}
_SPEC_PREFERENCES = {
    "machine.preferredMachineType": "domain.machine.type",
    "clock.preferredTimer": "domain.clock.timer",
    "preferredLaunchSecurity": "domain.launchSecurity",
    "preferredArchitecture": "architecture",
    "preferredSubdomain": "subdomain",
    "preferredTerminationGracePeriodSeconds": "terminationGracePeriodSeconds",
}
_BUSES = {"disk": "preferredDiskBus", "cdrom": "preferredCdromBus", "lun": "preferredLunBus"}
_DISK_PREFERENCES = {
    "preferredDiskBlockSize": "blockSize",
    "preferredDiskCache": "cache",
    "preferredDiskIO": "io",
}
_CPU_FIELDS = ("model", "isolateEmulatorThread", "numa", "realtime", "maxSockets")
_INSTANCETYPE_FIELDS = {
    "cpu.dedicatedCPUPlacement": "domain.cpu.dedicatedCpuPlacement",
    "memory.hugepages": "domain.memory.hugepages",
    "memory.maxGuest": "domain.memory.maxGuest",
    "ioThreads.supplementalPoolThreadCount": "domain.ioThreads.supplementalPoolThreadCount",
    "ioThreadsPolicy": "domain.ioThreadsPolicy",
    "launchSecurity": "domain.launchSecurity",
    "gpus": "domain.devices.gpus",
    "hostDevices": "domain.devices.hostDevices",
    "schedulerName": "schedulerName",
}
_DEFAULT_SPREAD_RATIO = 2
_THREADS_PER_CORE = 2
"""threads of a core in a topology that is spread across sockets, cores and threads"""


def expand(template: Json, matched: MatchedSpecs) -> Json:
    """The template of a VMI (`metadata` and `spec`) with the values with which KubeVirt starts the VMI."""
    spec = apply_specs(apply_attach_preferences(typed(dict, template, "spec") or {}, matched.preference), matched)
    metadata = typed(dict, template, "metadata") or {}
    annotations = apply_annotations(typed(dict, metadata, "annotations") or {}, matched)
    return {**template, "spec": spec, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}


def apply_attach_preferences(spec: Json, preference: Json | None) -> Json:
    """The spec with the preferred `autoattach...` fields, which KubeVirt applies before it adds devices."""
    editor = DocumentEditor(spec)
    _attached(editor, preference)
    return editor.document


def _attached(editor: DocumentEditor, preference: Json | None) -> None:
    for part in _ATTACHED:
        value = at(preference, "devices", f"preferredAutoattach{part}")
        editor.fill(("domain", "devices", f"autoattach{part}"), value)


def apply_specs(spec: Json, matched: MatchedSpecs) -> Json:
    """The VMI spec with the values of the instance type and the preference."""
    editor = DocumentEditor(spec)
    if matched.instancetype is not None:
        _apply_instancetype(editor, matched.instancetype, matched.preference)
    if matched.preference is not None:
        _apply_preference(editor, matched.preference)
    return editor.document


def apply_annotations(annotations: Mapping[str, Any], matched: MatchedSpecs) -> Json:
    """The annotations of the VMI: its own come before those of the instance type and of the preference."""
    specs = (matched.preference, matched.instancetype)
    return {**{k: v for each in specs for k, v in (typed(dict, each, "annotations") or {}).items()}, **annotations}


def _apply_instancetype(editor: DocumentEditor, instancetype: Json, preference: Json | None) -> None:
    for source, target in _INSTANCETYPE_FIELDS.items():
        editor.fill(parse_path(target), at(instancetype, *parse_path(source)) or None)
    for name in _CPU_FIELDS:
        editor.fill(("domain", "cpu", name), at(instancetype, "cpu", name))
    _memory(editor, instancetype)
    selector = typed(dict, instancetype, "nodeSelector")
    for key, value in (selector or {}).items():
        editor.fill(("nodeSelector", key), value)
    count = at(instancetype, "cpu", "guest")
    topology = dict(zip(("sockets", "cores", "threads"), _topology(count, preference), strict=True))
    if isinstance(count, int) and all(is_unset(editor.get(("domain", "cpu", part))) for part in topology):
        for part, value in topology.items():
            editor.replace(("domain", "cpu", part), value)


def _memory(editor: DocumentEditor, instancetype: Json) -> None:
    """Sets the memory. With overcommit, the Pod requests less than the guest has."""
    guest, percent = at(instancetype, "memory", "guest"), at(instancetype, "memory", "overcommitPercent")
    size = to_int(guest)
    if editor.fill(("domain", "memory", "guest"), guest) and isinstance(percent, int) and percent > 0 and size:
        editor.fill(("domain", "resources", "requests", "memory"), str(size * (100 - percent) // 100))


def _topology(count: Any, preference: Json | None) -> tuple[int, int, int]:
    """Sockets, cores and threads of this number of virtual CPUs."""
    if not isinstance(count, int) or count <= 1:
        return 1, 1, 1
    preferred = str(at(preference, "cpu", "preferredCPUTopology") or "sockets").removeprefix("prefer").lower()
    if preferred == "cores":
        return 1, count, 1
    if preferred == "threads":
        return 1, 1, count
    if preferred != "spread":
        return count, 1, 1
    options = at(preference, "cpu", "spreadOptions")
    ratio = at(options, "ratio") or at(preference, "preferSpreadSocketToCoreRatio") or _DEFAULT_SPREAD_RATIO
    match at(options, "across") or "SocketsCores":
        case "CoresThreads":
            return 1, count // ratio, ratio
        case "SocketsCoresThreads":
            return count // _THREADS_PER_CORE // ratio, ratio, _THREADS_PER_CORE
    return count // ratio, ratio, 1


def _apply_preference(editor: DocumentEditor, preference: Json) -> None:
    _attached(editor, preference)
    _cpu_features(editor, preference)
    for source, target in _SPEC_PREFERENCES.items():
        editor.fill(parse_path(target), at(preference, *parse_path(source)))
    _devices(editor, typed(dict, preference, "devices") or {})
    _features(editor, typed(dict, preference, "features") or {})
    _firmware(editor, typed(dict, preference, "firmware") or {})
    clock = ("domain", "clock")
    offset = typed(dict, preference, "clock", "preferredClockOffset") or {}
    if not any(editor.get((*clock, name)) is not None for name in ("utc", "timezone")):
        for name, value in offset.items():
            editor.fill((*clock, name), value)


def _cpu_features(editor: DocumentEditor, preference: Json) -> None:
    path = ("domain", "cpu", "features")
    given = list(editor.get(path) or [])
    names = {at(feature, "name") for feature in given}
    added = [each for _, each in entries(preference, "cpu", "preferredCPUFeatures") if each.get("name") not in names]
    if added:
        editor.replace(path, [*given, *added])


def _devices(editor: DocumentEditor, preferred: Json) -> None:
    devices = ("domain", "devices")
    for source, target in _DEVICE_PREFERENCES.items():
        editor.fill((*devices, *parse_path(target)), preferred.get(source))
    if preferred.get("preferredDisableHotplug") is not None:
        editor.replace((*devices, "disableHotplug"), preferred["preferredDisableHotplug"])
    if isinstance(editor.get((*devices, "sound")), dict):
        editor.fill((*devices, "sound", "model"), preferred.get("preferredSoundModel"))
    for index, disk in list(entries(editor.get((*devices, "disks")))):
        _disk(editor, (*devices, "disks", index), disk, preferred)
    for index, nic in list(entries(editor.get((*devices, "interfaces")))):
        _interface(editor, index, nic, preferred)
    for index, _ in list(entries(editor.get((*devices, "inputs")))):
        editor.fill((*devices, "inputs", index, "bus"), preferred.get("preferredInputBus"))
        editor.fill((*devices, "inputs", index, "type"), preferred.get("preferredInputType"))
    _panic_devices(editor, preferred.get("preferredPanicDeviceModel"))


def _disk(editor: DocumentEditor, path: Path, disk: Json, preferred: Json) -> None:
    kind = next((kind for kind in ("disk", "cdrom", "lun") if disk.get(kind) is not None), None)
    if kind is None:
        kind = "disk"
        editor.replace((*path, kind), {})
    editor.fill((*path, kind, "bus"), preferred.get(_BUSES[kind]))
    if kind == "disk":
        for source, target in _DISK_PREFERENCES.items():
            editor.fill((*path, target), preferred.get(source))
        if editor.get((*path, "disk", "bus")) == "virtio":
            editor.fill((*path, "dedicatedIOThread"), preferred.get("preferredDiskDedicatedIoThread"))


_BINDINGS = ("bridge", "masquerade", "sriov", "slirp", "macvtap", "passt", "passtBinding", "binding")


def _interface(editor: DocumentEditor, index: int, interface: Json, preferred: Json) -> None:
    path = ("domain", "devices", "interfaces", index)
    editor.fill((*path, "model"), preferred.get("preferredInterfaceModel"))
    networks = {network.get("name"): network for _, network in entries(editor.get(("networks",)))}
    on_pod_network = at(networks.get(interface.get("name")), "pod") is not None
    if on_pod_network and all(interface.get(binding) is None for binding in _BINDINGS):
        editor.fill((*path, "masquerade"), preferred.get("preferredInterfaceMasquerade"))


def _panic_devices(editor: DocumentEditor, model: Any) -> None:
    path = ("domain", "devices", "panicDevices")
    if model is None:
        return
    if not editor.get(path):
        editor.replace(path, [{"model": model}])
    for index, _ in list(entries(editor.get(path))):
        editor.fill((*path, index, "model"), model)


def _features(editor: DocumentEditor, preferred: Json) -> None:
    features = ("domain", "features")
    if preferred.get("preferredAcpi") is not None:
        editor.replace((*features, "acpi"), preferred["preferredAcpi"])
    for source, target in _FEATURE_PREFERENCES.items():
        editor.fill((*features, target), preferred.get(source))
    for name, value in (typed(dict, preferred, "preferredHyperv") or {}).items():
        editor.fill((*features, "hyperv", name), value)


def _firmware(editor: DocumentEditor, preferred: Json) -> None:
    for field, value in _bootloader(editor.get(("domain", "firmware", "bootloader")) or {}, preferred):
        editor.fill(("domain", "firmware", "bootloader", *field), value)


def _bootloader(given: Json, preferred: Json) -> Iterator[tuple[Path, Any]]:
    bios, efi = given.get("bios"), given.get("efi")
    if bios is None and efi is None and preferred.get("preferredUseBios") is True:
        bios = {}
        yield ("bios",), bios
    if bios is not None:
        yield ("bios", "useSerial"), preferred.get("preferredUseBiosSerial")
    elif efi is None and preferred.get("preferredEfi") is not None:
        yield ("efi",), preferred["preferredEfi"]
        return
    elif efi is None and preferred.get("preferredUseEfi") is True:
        efi = {}
        yield ("efi",), efi
    if efi is not None:
        yield ("efi", "secureBoot"), preferred.get("preferredUseSecureBoot")


# What a VM gets of the values that its preference brings: those that decide its devices and their addresses. Hardware
# is chosen when the VM is created, so the VM keeps it if somebody edits the preference. Other values stay in the
# preference, and KubeVirt reads them at each start from the revision that it keeps.
_WRITTEN = frozenset(
    parse_path(path)
    for path in (
        "architecture",
        "domain.machine.type",
        "domain.firmware.bootloader.efi.secureBoot",
        *(f"domain.devices.autoattach{part}" for part in ("GraphicsDevice", "MemBalloon", "SerialConsole")),
        "domain.devices.disableHotplug",
        "domain.devices.useVirtioTransitional",
        "domain.devices.video.type",
        "domain.devices.sound.model",
        *(f"domain.devices.disks.*.{kind}.bus" for kind in _BUSES),
        "domain.devices.interfaces.*.model",
        "domain.devices.inputs.*.bus",
        "domain.devices.inputs.*.type",
        "domain.devices.panicDevices.*.model",
    )
)
_SHARED = frozenset(
    parse_path(path)
    for path in ("domain", "domain.cpu", "domain.devices", "domain.devices.video", "domain.features", "domain.firmware")
) | {("domain", "machine")}
"""objects whose fields a preference fills one by one. It sets any other object only as a whole: one field
in the VM keeps the whole object of the preference out."""


def collapse(given: Json, expanded: Json, defaulted: Json, *, has_instancetype: bool) -> Json:
    """The spec of a VM (`given`) with the defaults that were chosen for this spec with its instance type and its
    preference (`expanded`). It gets no CPU and no memory beside an instance type, which KubeVirt would refuse."""
    kept = {name: at(given, "domain", name) for name in ("cpu", "memory", "resources")} if has_instancetype else {}
    spec: Json = _collapsed(given, expanded, defaulted, ())
    domain = {**(spec.get("domain") or {}), **kept}
    return {**spec, "domain": {name: value for name, value in domain.items() if value is not None}}


def _collapsed(given: Any, expanded: Any, defaulted: Any, path: Path) -> Any:
    if isinstance(defaulted, dict) and isinstance(expanded, dict):
        if given is None and path not in _SHARED:
            return None
        below = {
            key: _collapsed(at(given, key), expanded.get(key), value, (*path, key)) for key, value in defaulted.items()
        }
        values = {key: value for key, value in below.items() if value is not None}
        return values if values or given is not None else None
    if isinstance(defaulted, list) and isinstance(expanded, list):
        if given is None:
            return None
        items = zip(given, expanded, defaulted, strict=False)
        return [_collapsed(*each, (*path, "*")) for each in items] + defaulted[len(expanded) :]
    return given if _is_brought(given, expanded) and path not in _WRITTEN else defaulted


def _is_brought(given: Any, expanded: Any) -> bool:
    """Whether the instance type or the preference sets a value that the VM leaves unset. The value may be 0."""
    return is_unset(given) and expanded is not None and expanded != given
