"""What a VM's spec and a domain's XML have in common: one row a field, read in both directions by `walker`.

To widen the table, add a row and a golden file that uses it. A row says where the field is in the spec (from a
VirtualMachineInstance's `spec`, or from a device in one of its lists), where it is in the XML (from `domain`, or from
the device's element), how the value is spelled on either side, and whose business it is: what the guest can see is
decided and written down, what only the host sees is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
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
    named,
    one_of,
)


class Side(Enum):
    GUEST = "guest"
    HOST = "host"


@dataclass(frozen=True)
class Row:
    spec: str
    xml: str
    codec: Codec = TEXT
    fills: bool = False
    """libvirt decides it: its choice is written into the spec where the spec leaves it open"""
    assumed: Any = None
    """what KubeVirt tells libvirt where the spec leaves it open and nothing may be written there"""
    within: str = ""
    """an object of the spec without which the row says nothing"""
    side: Side = Side.GUEST


@dataclass(frozen=True)
class Devices:
    """A list (or one object) of devices in the spec, each of which is an element of the XML, matched by its name."""

    spec: str
    element: str
    rows: tuple[Row, ...]
    named: bool = True
    """carries the name as an alias `ua-NAME`, which libvirt keeps"""
    single: bool = False


ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "s390x": "s390x"}
NIC_MODELS = ("e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "virtio")
HOST_CPUS = ("host-model", "host-passthrough")


def _host_cpu(value: str) -> str:
    return value if value in HOST_CPUS else "custom"


CPU_MODE = Codec(_host_cpu, lambda mode: mode if mode in HOST_CPUS else None, TEXT.accepts, TEXT.expected)
CPU_NAME = Codec(lambda value: None if value in HOST_CPUS else value, TEXT.decode, TEXT.accepts, TEXT.expected)
CLOCK_ADJUSTMENT = Codec(
    lambda value: str(value.get("offsetSeconds", "reset")),
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

_TIMER_ENABLED = enabled("yes", "no")


def _timer(name: str, xml: str, *extra: str) -> tuple[Row, ...]:
    """A timer that is present unless disabled, with its policies."""
    spec, element = f"domain.clock.timer.{name}", f"clock/timer[@name='{xml}']"
    attributes = {"tickPolicy": "tickpolicy", "track": "track"}
    return (
        Row(spec, f"{element}/@present", _TIMER_ENABLED),
        *(Row(f"{spec}.{field}", f"{element}/@{attributes[field]}") for field in extra),
    )


def _hyperv(*names: str) -> tuple[Row, ...]:
    spellings = {"synictimer": "stimer", "vendorid": "vendor_id"}
    return tuple(
        Row(f"domain.features.hyperv.{name}", f"features/hyperv/{spellings.get(name, name)}/@state", STATE)
        for name in names
    )


DOMAIN: tuple[Row, ...] = (
    Row("architecture", "os/type/@arch", one_of(*ARCHITECTURES, renamed=ARCHITECTURES)),
    Row("domain.machine.type", "os/type/@machine", TEXT, fills=True),
    Row("domain.cpu.cores", "cpu/topology/@cores", COUNT, assumed=1),
    Row("domain.cpu.threads", "cpu/topology/@threads", COUNT, assumed=1),
    Row("domain.cpu.sockets", "cpu/topology/@sockets", COUNT, assumed=1),
    Row("domain.cpu.model", "cpu/@mode", CPU_MODE, assumed="host-model"),
    Row("domain.cpu.model", "cpu/model", CPU_NAME),
    Row("domain.memory.guest", "memory", BYTES),
    Row("domain.firmware.uuid", "uuid", UUID),
    Row("domain.firmware.uuid", "sysinfo/system/entry[@name='uuid']", UUID),
    Row("domain.firmware.serial", "sysinfo/system/entry[@name='serial']", TEXT),
    Row("domain.firmware.bootloader.bios.useSerial", "os/bios/@useserial", YES_NO),
    Row(
        "domain.firmware.bootloader.efi.secureBoot",
        "os/loader/@secure",
        YES_NO,
        within="domain.firmware.bootloader.efi",
    ),
    Row("domain.firmware.kernelBoot.kernelArgs", "os/cmdline", TEXT),
    Row("domain.chassis.manufacturer", "sysinfo/chassis/entry[@name='manufacturer']"),
    Row("domain.chassis.version", "sysinfo/chassis/entry[@name='version']"),
    Row("domain.chassis.serial", "sysinfo/chassis/entry[@name='serial']"),
    Row("domain.chassis.asset", "sysinfo/chassis/entry[@name='asset']"),
    Row("domain.chassis.sku", "sysinfo/chassis/entry[@name='sku']"),
    Row("domain.clock.utc", "clock/@offset", CLOCK_UTC),
    Row("domain.clock.utc", "clock/@adjustment", CLOCK_ADJUSTMENT),
    Row("domain.clock.timezone", "clock/@offset", CLOCK_ZONE),
    Row("domain.clock.timezone", "clock/@timezone"),
    *_timer("rtc", "rtc", "tickPolicy", "track"),
    *_timer("pit", "pit", "tickPolicy"),
    *_timer("kvm", "kvmclock"),
    *_timer("hpet", "hpet", "tickPolicy"),
    *_timer("hyperv", "hypervclock"),
    Row("domain.features.acpi", "features/acpi", FEATURE),
    Row("domain.features.apic", "features/apic", FEATURE),
    Row("domain.features.smm", "features/smm/@state", STATE),
    Row("domain.features.pvspinlock", "features/pvspinlock/@state", STATE),
    Row("domain.features.kvm.hidden", "features/kvm/hidden/@state", ON_OFF),
    *_hyperv("relaxed", "reset", "runtime", "synic", "synictimer", "vapic", "vpindex", "frequencies"),
    *_hyperv("reenlightenment", "tlbflush", "ipi", "evmcs", "spinlocks", "vendorid"),
    Row(
        "domain.features.hyperv.spinlocks.spinlocks",
        "features/hyperv/spinlocks/@retries",
        COUNT,
        assumed=4096,
        within="domain.features.hyperv.spinlocks",
    ),
    Row("domain.features.hyperv.vendorid.vendorid", "features/hyperv/vendor_id/@value"),
)

CPU_FEATURES = Devices(
    "domain.cpu.features",
    "cpu/feature",
    (
        Row("name", "@name"),
        Row("policy", "@policy", one_of("force", "require", "optional", "disable", "forbid"), assumed="require"),
    ),
    named=False,
)

_BUSES = one_of("virtio", "sata", "scsi", "usb")
_KINDS = ("disk", "cdrom", "lun")

DISKS = Devices(
    "domain.devices.disks",
    "devices/disk",
    (
        *(Row(kind, "@device", named(kind)) for kind in _KINDS),
        *(Row(f"{kind}.bus", "target/@bus", _BUSES, within=kind) for kind in _KINDS),
        Row("disk.pciAddress", "address", PCI, fills=True, within="disk"),
        Row("disk.readonly", "readonly", FLAG, within="disk"),
        Row("lun.readonly", "readonly", FLAG, within="lun"),
        Row("cdrom.readonly", "readonly", FLAG, assumed=True, within="cdrom"),
        Row("cdrom.tray", "target/@tray", one_of("open", "closed"), within="cdrom"),
        Row("bootOrder", "boot/@order", COUNT),
        Row("serial", "serial"),
        Row("shareable", "shareable", FLAG),
        Row("blockSize.custom.logical", "blockio/@logical_block_size", COUNT),
        Row("blockSize.custom.physical", "blockio/@physical_block_size", COUNT),
        Row("blockSize.custom.discardGranularity", "blockio/@discard_granularity", COUNT),
        Row("cache", "driver/@cache", one_of("none", "writethrough", "writeback"), side=Side.HOST),
        Row("io", "driver/@io", one_of("native", "threads"), side=Side.HOST),
        Row("errorPolicy", "driver/@error_policy", one_of("stop", "ignore", "report", "enospace"), side=Side.HOST),
    ),
)

INTERFACES = Devices(
    "domain.devices.interfaces",
    "devices/interface",
    (
        Row("model", "model/@type", NIC_MODEL, assumed="virtio"),
        Row("macAddress", "mac/@address", MAC, fills=True),
        Row("pciAddress", "address", PCI, fills=True),
        Row("acpiIndex", "acpi/@index", COUNT),
        Row("bootOrder", "boot/@order", COUNT),
        Row("state", "link/@state", LINK),
    ),
)

INPUTS = Devices(
    "domain.devices.inputs",
    "devices/input",
    (
        Row("bus", "@bus", one_of("usb", "virtio"), assumed="usb"),
        Row("type", "@type", one_of("tablet"), assumed="tablet"),
    ),
)

WATCHDOG = Devices(
    "domain.devices.watchdog",
    "devices/watchdog",
    (
        Row("i6300esb", "@model", named("i6300esb")),
        Row("i6300esb.action", "@action", one_of("poweroff", "reset", "shutdown"), within="i6300esb"),
        Row("diag288", "@model", named("diag288")),
        Row("diag288.action", "@action", one_of("poweroff", "reset", "shutdown"), within="diag288"),
    ),
    single=True,
)

SOUND = Devices(
    "domain.devices.sound",
    "devices/sound",
    (Row("model", "@model", one_of("ich9", "ac97"), assumed="ich9"),),
    single=True,
)

VIDEO = Devices(
    "domain.devices.video",
    "devices/video",
    (Row("type", "model/@type", one_of("vga", "cirrus", "virtio", "bochs", "ramfb")),),
    named=False,
    single=True,
)

RNG = Devices("domain.devices.rng", "devices/rng", (), named=False, single=True)
TPM = Devices("domain.devices.tpm", "devices/tpm", (), named=False, single=True)

PANIC = Devices(
    "domain.devices.panicDevices",
    "devices/panic",
    (Row("model", "@model", one_of("hyperv", "isa", "pvpanic"), fills=True),),
    named=False,
)

DEVICES: tuple[Devices, ...] = (CPU_FEATURES, DISKS, INTERFACES, INPUTS, WATCHDOG, SOUND, VIDEO, RNG, TPM, PANIC)
