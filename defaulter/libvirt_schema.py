"""The table that maps the spec of a libvirt-shaped `VM` to the XML of a libvirt domain, in both directions.

An `ElementSchema` is an XML element, and the JSON object with its attributes, its text and its child elements. To map
another element, add a row. The author of a spec need not have any right on this host. libvirt therefore gets only the
values of the table's rows, and each must be a word or a number, which no path can be. Elements of the host (emulator,
kernel, sources, drivers) are withheld: libvirt would run an emulator, and its errors would say which files exist.
Placeholders stand for them (`libvirt_placeholders`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from defaulter.hook import ADDRESS_BOUNDS
from defaulter.limits import MAX_VCPUS


@dataclass(frozen=True)
class Value:
    """The values of an attribute or a text that libvirt may get."""

    pattern: re.Pattern[str]
    expected: str
    """the allowed values, in an error message after "must be" """
    most: int | None = None
    """bound of a number"""

    def accepts(self, text: str) -> bool:
        if not self.pattern.fullmatch(text):
            return False
        return self.most is None or int(text, 16 if text.startswith("0x") else 10) <= self.most


def _up_to(most: int) -> Value:
    return Value(re.compile(r"0x[0-9a-fA-F]{1,8}|[0-9]{1,18}"), f"a number of at most {most}", most)


def _one_of(*words: str) -> Value:
    return Value(re.compile("|".join(words)), "one of " + ", ".join(words))


WORD = Value(re.compile(r"[A-Za-z0-9_.:+-]{1,128}"), "a word of letters, digits and the characters _ . : + -")
SIZE = Value(re.compile(r"[0-9]{1,18}"), "a number of at most 18 digits")
DISK_NAME = Value(re.compile(r"(fd|hd|sd|vd|xvd|ubd)[a-z][a-z]?[0-9]{0,2}"), "the name of a disk such as vda or sdaa")
SERIAL = Value(
    re.compile(r"[A-Za-z0-9_.:+ -]{1,128}"), "a text of letters, digits, spaces and the characters _ . : + -"
)
HOST_DEVICE = Value(re.compile("pci|usb"), "pci or usb, because only the node knows what other host devices are")


@dataclass(frozen=True)
class ElementSchema:
    """An XML element whose attributes and text are the keys of a JSON object."""

    element: str
    attributes: Mapping[str, Value] = field(default_factory=dict)
    text: str | None = None
    """the JSON key of the element's text; an element with only text is a plain value in JSON"""
    content: Value = WORD
    """values of the element's text"""
    below: Mapping[str, ElementSchema] = field(default_factory=dict)
    many: bool = False
    withheld: bool = False
    """whether the element describes the host and not the guest: libvirt never gets it, and it is never read back"""

    @property
    def is_number(self) -> bool:
        return self.content is SIZE or self.content.most is not None

    @property
    def plain(self) -> bool:
        return self.text is not None and not self.attributes and not self.below

    def keys(self) -> Iterator[str]:
        """The keys of the JSON object."""
        yield from self.attributes
        if self.text is not None:
            yield self.text
        yield from self.below


def _words(*names: str) -> dict[str, Value]:
    return dict.fromkeys(names, WORD)


# Bounds of numbers: libvirt adds all controllers and devices up to an index, and searches for free places one by one.

BOUNDS: Mapping[str, int] = {
    **ADDRESS_BOUNDS,
    "iobase": 0xFFFF,
    "irq": 0xFF,
    "order": 2**31 - 1,  # QEMU: bootindex
    **dict.fromkeys(("ram", "vram", "vram64", "vgamem"), 1024**2),  # KiB
    "heads": 16,  # QEMU: max_outputs
    "ports": 31,  # QEMU: max_ports of virtio-serial; a USB controller has 15
    "vectors": 2**16,
    "retries": 2**31 - 1,
    "frequency": 2**31 - 1,
    **dict.fromkeys(("current", "sockets", "dies", "cores", "threads"), MAX_VCPUS),
    **dict.fromkeys(("logical_block_size", "physical_block_size"), 2 * 1024**2),  # QEMU: MAX_BLOCK_SIZE
}
CID = _up_to(2**32 - 1)
MTU = _up_to(2**16 - 1)
ACPI_INDEX = _up_to(16 * 1024 - 1)


def _numbers(*names: str) -> dict[str, Value]:
    return {name: _up_to(BOUNDS[name]) for name in names}


def _plain(element: str, content: Value = WORD) -> ElementSchema:
    return ElementSchema(element, text="value", content=content)


def _withheld(*elements: str) -> dict[str, ElementSchema]:
    return {element: ElementSchema(element, withheld=True) for element in elements}


def _size(element: str) -> ElementSchema:
    return ElementSchema(element, _words("unit"), "value", SIZE)


def _states(*names: str) -> dict[str, ElementSchema]:
    return {name: ElementSchema(name, _words("state")) for name in names}


ADDRESS = ElementSchema(
    "address",
    {
        **_words("type"),
        **_numbers("domain", "bus", "slot", "function"),
        **_words("multifunction"),
        **_numbers("controller", "target", "unit", "cssid", "ssid", "devno", "iobase", "irq"),
        **_words("port"),
    },
)
ALIAS = ElementSchema("alias", _words("name"))
BOOT = ElementSchema("boot", _numbers("order"))
SOURCE = _withheld("source")
CHARACTER_DEVICE = {**_withheld("source", "log", "protocol")}
PORT = ElementSchema(
    "target", {**_words("type"), **_numbers("port")}, below={"model": ElementSchema("model", _words("name"))}
)


def _device(element: str, attributes: Mapping[str, Value] | None = None, **below: ElementSchema) -> ElementSchema:
    device = {"address": ADDRESS, "alias": ALIAS, "boot": BOOT}
    return ElementSchema(element, attributes or {}, below={**device, **below}, many=True)


def _single(schema: ElementSchema) -> ElementSchema:
    return replace(schema, many=False)


DEVICES: dict[str, ElementSchema] = {
    **_withheld("emulator", "audios"),
    "disks": _device(
        "disk",
        _words("type", "device", "model"),
        target=ElementSchema("target", {"dev": DISK_NAME, **_words("bus", "tray")}),
        serial=_plain("serial", SERIAL),
        wwn=_plain("wwn"),
        blockio=ElementSchema("blockio", _numbers("logical_block_size", "physical_block_size")),
        readonly=ElementSchema("readonly"),
        shareable=ElementSchema("shareable"),
        **_withheld("driver", "source", "auth", "backingStore", "encryption", "iotune", "mirror"),
    ),
    "controllers": _device(
        "controller",
        {**_words("type"), **_numbers("index"), **_words("model"), **_numbers("ports", "vectors")},
        model=ElementSchema("model", _words("name")),
        target=ElementSchema("target", {**_numbers("chassis", "port", "chassisNr", "busNr"), **_words("hotplug")}),
        **_withheld("driver"),
    ),
    "hubs": _device("hub", _words("type")),
    "interfaces": _device(
        "interface",
        _words("type"),
        mac=ElementSchema("mac", _words("address")),
        model=ElementSchema("model", _words("type")),
        link=ElementSchema("link", _words("state")),
        mtu=ElementSchema("mtu", {"size": MTU}),
        acpi=ElementSchema("acpi", {"index": ACPI_INDEX}),
        rom=ElementSchema("rom", _words("bar", "enabled"), below=_withheld("file")),
        **_withheld("driver", "source", "target", "backend", "bandwidth", "filterref", "script", "virtualport", "vlan"),
    ),
    "serials": _device("serial", _words("type"), target=PORT, **CHARACTER_DEVICE),
    "consoles": ElementSchema(
        "console",
        _words("type"),
        many=True,
        below={"address": ADDRESS, "alias": ALIAS, "target": PORT, **CHARACTER_DEVICE},
    ),
    "channels": _device(
        "channel", _words("type"), target=ElementSchema("target", _words("type", "name")), **CHARACTER_DEVICE
    ),
    "redirdevs": _device("redirdev", _words("bus", "type"), **CHARACTER_DEVICE),
    "inputs": _device("input", _words("type", "bus", "model")),
    "graphics": ElementSchema(
        "graphics",
        _words("type"),
        many=True,
        below=_withheld("port", "autoport", "keymap", "listen", "listens", "passwd", "socket", "tlsPort", "websocket"),
    ),
    "sounds": _device("sound", _words("model"), **_withheld("audio")),
    "videos": _device(
        "video",
        {},
        model=ElementSchema(
            "model", {**_words("type"), **_numbers("ram", "vram", "vram64", "vgamem", "heads"), **_words("primary")}
        ),
        **_withheld("driver"),
    ),
    "watchdogs": _device("watchdog", _words("model", "action")),
    "rngs": _device("rng", _words("model"), **_withheld("backend", "driver", "rate")),
    "tpms": _device("tpm", _words("model"), **_withheld("backend")),
    "panics": _device("panic", _words("model")),
    "filesystems": _device(
        "filesystem",
        {"type": _one_of("mount"), **_words("accessmode", "model")},
        driver=ElementSchema(
            "driver", {"type": _one_of("path", "virtiofs")}, below=_withheld("format", "name", "queue")
        ),
        target=ElementSchema("target", _words("dir")),
        readonly=ElementSchema("readonly"),
        **_withheld("binary", "source"),
    ),
    "hostdevs": _device(
        "hostdev",
        {"mode": _one_of("subsystem"), "type": HOST_DEVICE, **_words("managed")},
        rom=ElementSchema("rom", _words("bar", "enabled"), below=_withheld("file")),
        **_withheld("driver", "source"),
    ),
    "vsock": _single(_device("vsock", _words("model"), cid=ElementSchema("cid", {**_words("auto"), "address": CID}))),
    "memballoon": _single(
        _device("memballoon", _words("model", "autodeflate", "freePageReporting"), **_withheld("driver", "stats"))
    ),
}

_TIMER = ElementSchema(
    "timer", {**_words("name", "present", "tickpolicy", "track", "mode"), **_numbers("frequency")}, many=True
)

HYPERV = ElementSchema(
    "hyperv",
    _words("mode"),
    below={
        **_states("relaxed", "vapic", "vpindex", "runtime", "synic", "reset", "frequencies", "reenlightenment"),
        **_states("tlbflush", "ipi", "evmcs", "avic"),
        "spinlocks": ElementSchema("spinlocks", {**_words("state"), **_numbers("retries")}),
        "stimer": ElementSchema("stimer", _words("state"), below=_states("direct")),
        "vendorId": ElementSchema("vendor_id", _words("state", "value")),
    },
)

FEATURES = ElementSchema(
    "features",
    below={
        **{name: ElementSchema(name) for name in ("acpi", "pae")},
        "apic": ElementSchema("apic", _words("eoi")),
        **_states("pvspinlock", "pmu", "vmport", "smm", "vmcoreinfo"),
        "gic": ElementSchema("gic", _words("version")),
        "hyperv": HYPERV,
        "kvm": ElementSchema("kvm", below=_states("hidden")),
    },
)

DOMAIN = ElementSchema(
    "domain",
    below={
        **_withheld("type", "name", "title", "description", "metadata"),
        "uuid": _plain("uuid"),
        "memory": _size("memory"),
        "currentMemory": _size("currentMemory"),
        "vcpu": ElementSchema("vcpu", {**_words("placement"), **_numbers("current")}, "value", _up_to(MAX_VCPUS)),
        "os": ElementSchema(
            "os",
            below={
                "type": ElementSchema("type", _words("arch", "machine"), "os"),
                "loader": ElementSchema(
                    "loader", _words("readonly", "secure", "type"), below=_withheld("path", "value", "format")
                ),
                "bootOrder": ElementSchema("boot", _words("dev"), many=True),
                **_withheld("kernel", "initrd", "cmdline", "nvram"),
            },
        ),
        "features": FEATURES,
        "cpu": ElementSchema(
            "cpu",
            _words("mode", "match", "check", "migratable"),
            below={
                "model": ElementSchema("model", _words("fallback"), "name"),
                "topology": ElementSchema("topology", _numbers("sockets", "dies", "cores", "threads")),
                "features": ElementSchema("feature", _words("name", "policy"), many=True),
            },
        ),
        "clock": ElementSchema(
            "clock", _words("offset", "adjustment", "basis"), below={**_withheld("timezone"), "timers": _TIMER}
        ),
        "pm": ElementSchema(
            "pm",
            below={
                "suspendToMem": ElementSchema("suspend-to-mem", _words("enabled")),
                "suspendToDisk": ElementSchema("suspend-to-disk", _words("enabled")),
            },
        ),
        "onPoweroff": _plain("on_poweroff"),
        "onReboot": _plain("on_reboot"),
        "onCrash": _plain("on_crash"),
        "devices": ElementSchema("devices", below=DEVICES),
        **_withheld(
            "blkiotune", "cputune", "iothreads", "memoryBacking", "memtune", "numatune", "resource", "seclabels"
        ),
    },
)
