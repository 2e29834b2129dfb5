"""Sets the defaults that KubeVirt sets before it calls libvirt.

KubeVirt sets most of these defaults when a VM starts, in the VMI only. libvirt alone would choose other defaults, such
as IDE disks and the NIC model rtl8139. The same document always gets the same defaults, without libvirt.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.machine_types import ALIASES, UnavailablePolicy
from defaulter.vm_paths import VMLocation
from defaulter.vmi_spec import DISK_KINDS, default_bus, disk_kind, is_emulated, video_type
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kubevirt import versions
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings

MACPolicy = Literal["deterministic", "libvirt", "leave"]
InterfaceBinding = Literal["bridge", "masquerade", "leave"]
VideoPolicy = Literal["fill", "leave"]

BINDINGS: Mapping[str, InterfaceBinding] = {"": "bridge", "bridge": "bridge", "masquerade": "masquerade"}
"""The binding for each default interface of a KubeVirt object. KubeVirt no longer supports others, such as slirp."""


@dataclass(frozen=True)
class ClusterConfig:
    """The configuration of the cluster's KubeVirt that affects what a guest sees, and the defaulter's own settings."""

    architecture: str = "amd64"
    binding: InterfaceBinding = "bridge"
    """binding of the interface that KubeVirt adds to a VM without interfaces"""
    cpu_model: str = "host-model"
    """CPU model of a VM that names none; empty: KubeVirt sets it when the VM starts"""
    unknown_cpu_model: str = ""
    """the cluster's CPU model, if no libvirt knows it; `cpu_model` is empty then"""
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    """the KubeVirt object's settings, empty if it is unknown"""
    machines: Mapping[str, str] = field(default_factory=dict)
    """machine types of aliases, by the administrator"""
    unavailable_machines: UnavailablePolicy = "warn"
    """whether a machine type that no node has is a warning or an error"""
    macs: MACPolicy = "deterministic"
    video: VideoPolicy = "fill"
    """whether the display adapter gets a default, which some releases of KubeVirt reject"""
    record: bool = False
    """whether VMs get the hardware record, the annotation for hardware that a spec cannot hold"""

    @classmethod
    def of(cls, settings: ClusterSettings | None, overrides: Mapping[str, Any]) -> Self:
        """The configuration of a cluster. `overrides` are values by field, which take precedence. Without the settings
        of a KubeVirt object, KubeVirt's defaults apply, and no field is filled that some release rejects."""
        known = settings or ClusterSettings()
        found: dict[str, Any] = {
            "architecture": known.architecture or cls.architecture,
            "binding": BINDINGS.get(known.network, "leave"),
            "cpu_model": known.cpu_model or cls.cpu_model,
            "settings": known,
            "video": "fill" if known.enables(versions.VIDEO_CONFIG) else "leave",
            "record": known.enables(versions.PLUGINS) or known.enables(versions.SIDECAR),
        }
        return cls(**{**found, **overrides})

    def machine_type_by_virt_api(self, architecture: str) -> str | None:
        """The machine type that KubeVirt's virt-api has written into a VM without one, before the webhook of Poolhouse
        sees the VM. None without KubeVirt."""
        if not self.settings.versions:
            return None
        return self.settings.machine_types.get(architecture) or ALIASES.get(architecture)


def with_input_device(spec: Json, location: VMLocation) -> Json:
    """The spec with the input device that KubeVirt adds to the VMI each time the VM starts. A preference may choose its
    bus and type. VMs on s390x get none."""
    devices = at(spec, "domain", "devices")
    wanted = location.is_vm and at(devices, "autoattachInputDevice") is True
    if not wanted or at(devices, "inputs") or spec.get("architecture") == "s390x":
        return spec
    editor = DocumentEditor(spec)
    editor.replace(("domain", "devices", "inputs"), [{"name": "default-0"}])
    return editor.document


def add_devices(editor: DocumentEditor, location: VMLocation, cluster: ClusterConfig) -> None:
    """Adds an interface on the pod network to a VM without one, and a disk to each volume without a device."""
    if not location.has_preference:
        _network(editor, location.spec, cluster)
    disks = (*location.spec, "domain", "devices", "disks")
    for name in list(_volumes_without_device(editor.get(location.spec))):
        editor.append(disks, {"name": name, "disk": {}})


def set_kubevirt_defaults(editor: DocumentEditor, location: VMLocation, cluster: ClusterConfig) -> None:
    """Fills the fields that KubeVirt fills before it builds the domain."""
    add_devices(editor, location, cluster)
    spec = location.spec
    if not location.has_preference:
        editor.fill((*spec, "architecture"), cluster.architecture)
    architecture = editor.get((*spec, "architecture")) or cluster.architecture
    domain = (*spec, "domain")
    if not location.has_instancetype:
        _processors(editor, domain, architecture, cluster)
        editor.fill((*domain, "memory", "guest"), _memory(editor.get(domain)))
    if not location.has_preference:
        editor.fill((*domain, "features", "acpi", "enabled"), architecture != "s390x")
        _firmware(editor, domain, architecture)
    _spinlocks(editor, domain)
    _disks(editor, spec, architecture, location.has_preference)
    devices = (*domain, "devices")
    _devices(editor, devices, architecture, location.has_preference)
    has_graphics = editor.get((*devices, "autoattachGraphicsDevice")) and not location.has_preference
    if cluster.video == "fill" and has_graphics:
        editor.fill((*devices, "video", "type"), video_type(editor.get(spec)))


def _processors(editor: DocumentEditor, domain: Path, architecture: str, cluster: ClusterConfig) -> None:
    cpu = (*domain, "cpu")
    if model := "host-passthrough" if architecture == "arm64" else cluster.cpu_model:
        editor.fill((*cpu, "model"), model)
    # If cores or threads are set, virt-api reserves four times the sockets, which would change the hardware.
    if all(is_unset(editor.get((*cpu, part))) for part in ("cores", "threads", "sockets")):
        wanted = _requested_count(editor.get(domain), "cpu")
        editor.fill((*cpu, "sockets"), wanted or 1)
    for part in ("cores", "threads"):
        editor.fill((*cpu, part), 1)


def _requested_count(domain: Any, resource: str) -> int | None:
    for source in ("limits", "requests"):
        value = to_int(at(domain, "resources", source, resource))
        if value and value < 2**31:
            return value
    return None


def _memory(domain: Any) -> Any:
    """The memory quantity as the user wrote it, without rounding."""
    sources = (
        ("resources", "requests", "memory"),
        ("resources", "limits", "memory"),
        ("memory", "hugepages", "pageSize"),
    )
    return next((value for path in sources if to_int(value := at(domain, *path))), None)


def _network(editor: DocumentEditor, spec: Path, cluster: ClusterConfig) -> None:
    devices = editor.get((*spec, "domain", "devices"))
    if at(devices, "autoattachPodInterface") is False or cluster.binding == "leave":
        return
    if not at(devices, "interfaces") and not editor.get((*spec, "networks")):
        interface = {"name": "default", cluster.binding: {}}
        if _fill_list(editor, (*spec, "domain", "devices", "interfaces"), [interface]):
            _fill_list(editor, (*spec, "networks"), [{"name": "default", "pod": {}}])


def _fill_list(editor: DocumentEditor, path: Path, items: list[Json]) -> bool:
    """Fills a list that is unset or, as KubeVirt does, empty."""
    if editor.get(path) != []:
        return editor.fill(path, items)
    editor.replace(path, items)
    return True


def _firmware(editor: DocumentEditor, domain: Path, architecture: str) -> None:
    bootloader = (*domain, "firmware", "bootloader")
    if architecture == "arm64" and editor.get(bootloader) is None:
        editor.fill((*bootloader, "efi", "secureBoot"), False)
    if isinstance(editor.get((*bootloader, "efi")), dict):
        editor.fill((*bootloader, "efi", "secureBoot"), architecture != "arm64")


def _spinlocks(editor: DocumentEditor, domain: Path) -> None:
    spinlocks = (*domain, "features", "hyperv", "spinlocks")
    given = editor.get(spinlocks)
    if isinstance(given, dict) and given.get("enabled") is not False:
        editor.fill((*spinlocks, "spinlocks"), 4096)


def _disks(editor: DocumentEditor, spec: Path, architecture: str, has_preference: bool) -> None:
    disks = (*spec, "domain", "devices", "disks")
    for index, disk in entries(editor.get(disks)):
        kind = disk_kind(disk) or "disk"
        place = (*disks, index, kind)
        if disk_kind(disk) is None and all(disk.get(other) is None for other in DISK_KINDS):
            editor.fill(place, {})
        if not has_preference:
            editor.fill((*place, "bus"), default_bus(architecture))
        if kind == "cdrom":
            editor.fill((*place, "readonly"), True)
            editor.fill((*place, "tray"), "closed")


def _volumes_without_device(spec: Json) -> Iterator[str]:
    devices = at(spec, "domain", "devices")
    named = {str(d.get("name")) for key in ("disks", "filesystems") for _, d in entries(devices, key)}
    for _, volume in entries(spec.get("volumes")):
        name = volume.get("name")
        if isinstance(name, str) and name not in named and volume.get("memoryDump") is None:
            named.add(name)
            yield name


def _devices(editor: DocumentEditor, devices: Path, architecture: str, has_preference: bool) -> None:
    if not has_preference:
        for index, interface in entries(editor.get((*devices, "interfaces"))):
            if is_emulated(interface):
                editor.fill((*devices, "interfaces", index, "model"), "virtio")
        for index, _ in entries(editor.get((*devices, "inputs"))):
            editor.fill((*devices, "inputs", index, "bus"), "usb")
            editor.fill((*devices, "inputs", index, "type"), "tablet")
        for part in ("GraphicsDevice", "SerialConsole", "MemBalloon"):
            editor.fill((*devices, f"autoattach{part}"), True)
    if isinstance(editor.get((*devices, "watchdog")), dict) and architecture != "arm64":
        model = "diag288" if architecture == "s390x" else "i6300esb"
        editor.fill((*devices, "watchdog", model, "action"), "reset")
    if isinstance(editor.get((*devices, "sound")), dict) and not has_preference:
        editor.fill((*devices, "sound", "model"), "ich9")
