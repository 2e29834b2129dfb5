"""The table that maps the fields of a VMI spec to the XML of a libvirt domain: one row for each XML field.

To map another field, add a `Field` and a golden file that uses it. A row has the path of the field in the spec (from
the VMI's `spec`, or from a device in one of its lists), its path in the XML (from `domain`, or from the device's
element), and a codec. `walker` reads the table in both directions.
"""

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Any

from defaulter.codecs import (
    BYTES,
    COUNT,
    FEATURE,
    FLAG,
    MAC,
    ON_OFF,
    PCI,
    STATE,
    TEXT,
    UUID,
    YES_NO,
    Codec,
    enabled,
    has_alias,
    one_of,
)
from defaulter.json_paths import Path, parse_path


class Side(Enum):
    GUEST = auto()
    HOST = auto()


@dataclass(frozen=True)
class Field:
    spec: str
    xml: str
    codec: Codec = TEXT
    from_libvirt: bool = False
    """whether libvirt's choice is written into a spec without a value"""
    default: Any = None
    """value in the XML if the spec has none; never written into the spec"""
    requires: str = ""
    """path of an object in the spec that must exist for the field to apply"""
    side: Side = Side.GUEST

    @cached_property
    def path(self) -> Path:
        return parse_path(self.spec)


@dataclass(frozen=True)
class DeviceList:
    """A list of devices in the spec, or a single device. Each device is an XML element with the name `element`."""

    spec: str
    element: str
    fields: tuple[Field, ...]
    has_alias: bool = True
    """whether the element has the alias `ua-NAME`, which libvirt keeps"""
    is_single: bool = False


ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "s390x": "s390x"}
NIC_MODELS = ("e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "virtio")
HOST_CPUS = ("host-model", "host-passthrough")


def _host_cpu(value: str) -> str:
    return value if value in HOST_CPUS else "custom"


CPU_MODE = Codec(_host_cpu, lambda mode: mode if mode in HOST_CPUS else None, TEXT.accepts, TEXT.expected)
CPU_NAME = Codec(lambda value: None if value in HOST_CPUS else value, TEXT.decode, TEXT.accepts, TEXT.expected)
CLOCK_ADJUSTMENT = Codec(
    lambda value: "reset" if value.get("offsetSeconds") is None else str(value["offsetSeconds"]),
    lambda value: {} if value == "reset" else {"offsetSeconds": int(value)},
    lambda value: isinstance(value, dict) and isinstance(value.get("offsetSeconds"), int | None),
    "an object such as {offsetSeconds: 0}",
)
CLOCK_UTC = Codec(lambda value: "utc", lambda value: {}, CLOCK_ADJUSTMENT.accepts, CLOCK_ADJUSTMENT.expected)
CLOCK_ZONE = Codec(lambda value: "timezone", lambda value: None, TEXT.accepts, TEXT.expected)
NIC_MODEL = Codec(
    lambda value: value,
    lambda model: "virtio" if model.startswith("virtio") else model,
    lambda value: value in NIC_MODELS,
    one_of(*NIC_MODELS).expected,
)
LINK = Codec(
    lambda value: "down" if value == "down" else None,
    lambda value: value,
    lambda value: value in ("up", "down", "absent"),
    "one of absent, down, up",
)

_TIMER_PRESENT = enabled("yes", "no", key="present")


def _timer(name: str, xml: str, *extra: str) -> tuple[Field, ...]:
    spec, element = f"domain.clock.timer.{name}", f"clock/timer[@name='{xml}']"
    attributes = {"tickPolicy": "tickpolicy", "track": "track"}
    return (
        Field(spec, f"{element}/@present", _TIMER_PRESENT),
        *(Field(f"{spec}.{field}", f"{element}/@{attributes[field]}") for field in extra),
    )


def _hyperv(*names: str) -> tuple[Field, ...]:
    spellings = {"synictimer": "stimer", "vendorid": "vendor_id"}
    return tuple(
        Field(f"domain.features.hyperv.{name}", f"features/hyperv/{spellings.get(name, name)}/@state", STATE)
        for name in names
    )


DOMAIN: tuple[Field, ...] = (
    Field("architecture", "os/type/@arch", one_of(renamed=ARCHITECTURES)),
    Field("domain.machine.type", "os/type/@machine", from_libvirt=True),
    Field("domain.cpu.cores", "cpu/topology/@cores", COUNT, default=1),
    Field("domain.cpu.threads", "cpu/topology/@threads", COUNT, default=1),
    Field("domain.cpu.sockets", "cpu/topology/@sockets", COUNT, default=1),
    Field("domain.cpu.model", "cpu/@mode", CPU_MODE, default="host-model"),
    Field("domain.cpu.model", "cpu/model", CPU_NAME),
    Field("domain.memory.guest", "memory", BYTES),
    Field("domain.firmware.uuid", "uuid", UUID),
    Field("domain.firmware.uuid", "sysinfo/system/entry[@name='uuid']", UUID),
    Field("domain.firmware.serial", "sysinfo/system/entry[@name='serial']"),
    Field("domain.firmware.bootloader.bios.useSerial", "os/bios/@useserial", YES_NO),
    Field(
        "domain.firmware.bootloader.efi.secureBoot",
        "os/loader/@secure",
        YES_NO,
        requires="domain.firmware.bootloader.efi",
    ),
    Field("domain.firmware.kernelBoot.kernelArgs", "os/cmdline"),
    *(
        Field(f"domain.chassis.{part}", f"sysinfo/chassis/entry[@name='{part}']")
        for part in ("manufacturer", "version", "serial", "asset", "sku")
    ),
    Field("domain.clock.utc", "clock/@offset", CLOCK_UTC),
    Field("domain.clock.utc", "clock/@adjustment", CLOCK_ADJUSTMENT),
    Field("domain.clock.timezone", "clock/@offset", CLOCK_ZONE),
    Field("domain.clock.timezone", "clock/@timezone"),
    *_timer("rtc", "rtc", "tickPolicy", "track"),
    *_timer("pit", "pit", "tickPolicy"),
    *_timer("kvm", "kvmclock"),
    *_timer("hpet", "hpet", "tickPolicy"),
    *_timer("hyperv", "hypervclock"),
    Field("domain.features.acpi", "features/acpi", FEATURE),
    Field("domain.features.apic", "features/apic", FEATURE),
    Field("domain.features.smm", "features/smm/@state", STATE),
    Field("domain.features.pvspinlock", "features/pvspinlock/@state", STATE),
    Field("domain.features.kvm.hidden", "features/kvm/hidden/@state", ON_OFF),
    *_hyperv("relaxed", "reset", "runtime", "synic", "synictimer", "vapic", "vpindex", "frequencies"),
    *_hyperv("reenlightenment", "tlbflush", "ipi", "evmcs", "spinlocks", "vendorid"),
    Field(
        "domain.features.hyperv.spinlocks.spinlocks",
        "features/hyperv/spinlocks/@retries",
        COUNT,
        default=4096,
        requires="domain.features.hyperv.spinlocks",
    ),
    Field("domain.features.hyperv.vendorid.vendorid", "features/hyperv/vendor_id/@value"),
)

CPU_FEATURES = DeviceList(
    "domain.cpu.features",
    "cpu/feature",
    (
        Field("name", "@name"),
        Field("policy", "@policy", one_of("force", "require", "optional", "disable", "forbid"), default="require"),
    ),
    has_alias=False,
)


def _device_list(spec: str, element: str, *fields: Field, **options: bool) -> DeviceList:
    return DeviceList(f"domain.devices.{spec}", f"devices/{element}", fields, **options)


_BUSES = one_of("virtio", "sata", "scsi", "usb")
_KINDS = ("disk", "cdrom", "lun")

DISKS = _device_list(
    "disks",
    "disk",
    *(Field(kind, "@device", has_alias(kind)) for kind in _KINDS),
    *(Field(f"{kind}.bus", "target/@bus", _BUSES, requires=kind) for kind in _KINDS),
    Field("disk.pciAddress", "address", PCI, from_libvirt=True, requires="disk"),
    Field("disk.readonly", "readonly", FLAG, requires="disk"),
    Field("lun.readonly", "readonly", FLAG, requires="lun"),
    Field("cdrom.readonly", "readonly", FLAG, default=True, requires="cdrom"),
    Field("cdrom.tray", "target/@tray", one_of("open", "closed"), requires="cdrom"),
    Field("bootOrder", "boot/@order", COUNT),
    Field("serial", "serial", requires="disk"),
    Field("shareable", "shareable", FLAG),
    Field("blockSize.custom.logical", "blockio/@logical_block_size", COUNT),
    Field("blockSize.custom.physical", "blockio/@physical_block_size", COUNT),
    Field("blockSize.custom.discardGranularity", "blockio/@discard_granularity", COUNT),
    Field("cache", "driver/@cache", one_of("none", "writethrough", "writeback"), side=Side.HOST),
    Field("io", "driver/@io", one_of("native", "threads"), side=Side.HOST),
    Field("errorPolicy", "driver/@error_policy", one_of("stop", "ignore", "report", "enospace"), side=Side.HOST),
)

INTERFACES = _device_list(
    "interfaces",
    "interface",
    Field("model", "model/@type", NIC_MODEL, default="virtio"),
    Field("macAddress", "mac/@address", MAC, from_libvirt=True),
    Field("pciAddress", "address", PCI, from_libvirt=True),
    Field("acpiIndex", "acpi/@index", COUNT),
    Field("bootOrder", "boot/@order", COUNT),
    Field("state", "link/@state", LINK),
)

INPUTS = _device_list(
    "inputs",
    "input",
    Field("bus", "@bus", one_of("usb", "virtio"), default="usb"),
    Field("type", "@type", one_of("tablet"), default="tablet"),
)

WATCHDOG = _device_list(
    "watchdog",
    "watchdog",
    Field("i6300esb", "@model", has_alias("i6300esb")),
    Field("i6300esb.action", "@action", one_of("poweroff", "reset", "shutdown"), requires="i6300esb"),
    Field("diag288", "@model", has_alias("diag288")),
    Field("diag288.action", "@action", one_of("poweroff", "reset", "shutdown"), requires="diag288"),
    is_single=True,
)

SOUND = _device_list("sound", "sound", Field("model", "@model", one_of("ich9", "ac97"), default="ich9"), is_single=True)

VIDEO = _device_list(
    "video",
    "video",
    Field("type", "model/@type", one_of("vga", "cirrus", "virtio", "bochs", "ramfb")),
    has_alias=False,
    is_single=True,
)

RNG = _device_list("rng", "rng", has_alias=False, is_single=True)
TPM = _device_list("tpm", "tpm", has_alias=False, is_single=True)

PANIC = _device_list(
    "panicDevices",
    "panic",
    Field("model", "@model", one_of("hyperv", "isa", "pvpanic"), from_libvirt=True),
    has_alias=False,
)

DEVICES: tuple[DeviceList, ...] = (CPU_FEATURES, DISKS, INTERFACES, INPUTS, WATCHDOG, SOUND, VIDEO, RNG, TPM, PANIC)
