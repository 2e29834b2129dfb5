"""The table of fields, read without a libvirt: the values that each field allows, and where a value comes from."""

from __future__ import annotations

from typing import Any

import pytest

from defaulter import codecs, fields
from defaulter.codecs import Codec
from defaulter.fields import DEVICES, DOMAIN, Field, Side

BUSES = "sata, scsi, usb, virtio"
ACTIONS = "poweroff, reset, shutdown"
WORDS = {
    "architecture": "amd64, arm64, s390x",
    "domain.cpu.features: policy": "disable, forbid, force, optional, require",
    "domain.devices.disks: disk.bus": BUSES,
    "domain.devices.disks: cdrom.bus": BUSES,
    "domain.devices.disks: lun.bus": BUSES,
    "domain.devices.disks: cdrom.tray": "closed, open",
    "domain.devices.disks: cache": "none, writeback, writethrough",
    "domain.devices.disks: io": "native, threads",
    "domain.devices.disks: errorPolicy": "enospace, ignore, report, stop",
    "domain.devices.interfaces: model": "e1000, e1000e, igb, ne2k_pci, pcnet, rtl8139, virtio",
    "domain.devices.interfaces: state": "absent, down, up",
    "domain.devices.inputs: bus": "usb, virtio",
    "domain.devices.inputs: type": "tablet",
    "domain.devices.watchdog: i6300esb.action": ACTIONS,
    "domain.devices.watchdog: diag288.action": ACTIONS,
    "domain.devices.sound: model": "ac97, ich9",
    "domain.devices.video: type": "bochs, cirrus, ramfb, vga, virtio",
    "domain.devices.panicDevices: model": "hyperv, isa, pvpanic",
}
"""the words of KubeVirt's API that a field allows, of those with few"""

ROWS: tuple[tuple[str, Field], ...] = (
    *((row.spec, row) for row in DOMAIN),
    *((f"{devices.spec}: {row.spec}", row) for devices in DEVICES for row in devices.fields),
)


def test_the_words_that_a_field_allows() -> None:
    found = {name: row.codec for name, row in ROWS if row.codec.expected.startswith("one of ")}
    assert {name: codec.expected.removeprefix("one of ") for name, codec in found.items()} == WORDS
    for name, words in WORDS.items():
        assert all(found[name].accepts(word) for word in words.split(", ")), name
        assert not found[name].accepts(words.upper()), name


def test_the_formats_that_a_field_allows() -> None:
    formats = {codecs.BYTES: "size", codecs.UUID: "UUID", codecs.MAC: "MAC address", codecs.PCI: "PCI address"}
    assert [(name, formats[row.codec]) for name, row in ROWS if row.codec in formats] == [
        ("domain.memory.guest", "size"),
        ("domain.firmware.uuid", "UUID"),
        ("domain.firmware.uuid", "UUID"),
        ("domain.devices.disks: disk.pciAddress", "PCI address"),
        ("domain.devices.interfaces: macAddress", "MAC address"),
        ("domain.devices.interfaces: pciAddress", "PCI address"),
    ]


def test_what_kind_of_device_it_is_must_be_an_object() -> None:
    assert [name for name, row in ROWS if row.codec.expected == "an object"] == [
        "domain.devices.disks: disk",
        "domain.devices.disks: cdrom",
        "domain.devices.disks: lun",
        "domain.devices.watchdog: i6300esb",
        "domain.devices.watchdog: diag288",
    ]


def test_each_word_comes_back_from_its_xml() -> None:
    for name, row in ROWS:
        for word in WORDS.get(name, "").split(", ") if name in WORDS else ():
            encoded = row.codec.encode(word)
            assert encoded is None or row.codec.decode(encoded) == word, f"{name}: {word}"


def test_libvirt_chooses_addresses_and_models_that_a_spec_leaves_open() -> None:
    assert [name for name, row in ROWS if row.from_libvirt] == [
        "domain.machine.type",
        "domain.devices.disks: disk.pciAddress",
        "domain.devices.interfaces: macAddress",
        "domain.devices.interfaces: pciAddress",
        "domain.devices.panicDevices: model",
    ]


def test_the_guest_does_not_see_how_the_host_stores_a_disk() -> None:
    assert [name for name, row in ROWS if row.side is Side.HOST] == [
        "domain.devices.disks: cache",
        "domain.devices.disks: io",
        "domain.devices.disks: errorPolicy",
    ]


def test_what_kubevirt_assumes_without_a_value() -> None:
    assert {name: row.default for name, row in ROWS if row.default is not None} == {
        "domain.cpu.cores": 1,
        "domain.cpu.threads": 1,
        "domain.cpu.sockets": 1,
        "domain.cpu.model": "host-model",
        "domain.features.hyperv.spinlocks.spinlocks": 4096,
        "domain.cpu.features: policy": "require",
        "domain.devices.disks: cdrom.readonly": True,
        "domain.devices.interfaces: model": "virtio",
        "domain.devices.inputs: bus": "usb",
        "domain.devices.inputs: type": "tablet",
        "domain.devices.sound: model": "ich9",
    }


def test_which_object_a_spec_must_have_for_a_field() -> None:
    """A disk is one of three objects, whose fields have the same places in the XML."""
    assert {name: row.requires for name, row in ROWS if row.requires} == {
        "domain.firmware.bootloader.efi.secureBoot": "domain.firmware.bootloader.efi",
        "domain.features.hyperv.spinlocks.spinlocks": "domain.features.hyperv.spinlocks",
        "domain.devices.disks: disk.bus": "disk",
        "domain.devices.disks: cdrom.bus": "cdrom",
        "domain.devices.disks: lun.bus": "lun",
        "domain.devices.disks: disk.pciAddress": "disk",
        "domain.devices.disks: disk.readonly": "disk",
        "domain.devices.disks: lun.readonly": "lun",
        "domain.devices.disks: cdrom.readonly": "cdrom",
        "domain.devices.disks: cdrom.tray": "cdrom",
        "domain.devices.disks: serial": "disk",
        "domain.devices.watchdog: i6300esb.action": "i6300esb",
        "domain.devices.watchdog: diag288.action": "diag288",
    }


def test_devices_without_a_list_or_an_alias() -> None:
    assert [each.spec.rpartition(".")[2] for each in DEVICES if each.is_single] == [
        "watchdog",
        "sound",
        "video",
        "rng",
        "tpm",
    ]
    assert [each.spec.rpartition(".")[2] for each in DEVICES if not each.has_alias] == [
        "features",
        "video",
        "rng",
        "tpm",
        "panicDevices",
    ]


@pytest.mark.parametrize(
    ("codec", "value", "xml"),
    [
        pytest.param(fields.CPU_MODE, "host-passthrough", "host-passthrough", id="the mode of the host's CPU"),
        pytest.param(fields.CPU_MODE, "EPYC", "custom", id="the mode of a CPU with a name"),
        pytest.param(fields.CPU_NAME, "EPYC", "EPYC", id="the name of a CPU"),
        pytest.param(fields.CPU_NAME, "host-model", None, id="the host's CPU has no name"),
        pytest.param(fields.CLOCK_ADJUSTMENT, {"offsetSeconds": 7}, "7", id="a clock that differs"),
        pytest.param(fields.CLOCK_ADJUSTMENT, {}, "reset", id="a clock that is set anew at each start"),
        pytest.param(fields.CLOCK_UTC, {}, "utc", id="a clock in UTC"),
        pytest.param(fields.CLOCK_ZONE, "Europe/Berlin", "timezone", id="a clock in a time zone"),
        pytest.param(fields.LINK, "down", "down", id="a link that is down"),
        pytest.param(fields.LINK, "up", None, id="a link is up without a word"),
        pytest.param(fields.NIC_MODEL, "e1000", "e1000", id="the model of an interface"),
        pytest.param(codecs.FLAG, True, {}, id="an element that is there"),
        pytest.param(codecs.FLAG, False, None, id="an element that is not there"),
        pytest.param(codecs.FEATURE, {}, {}, id="a feature without a state"),
        pytest.param(codecs.FEATURE, {"enabled": False}, None, id="a feature that is disabled"),
        pytest.param(codecs.BYTES, "1Ki", {"unit": "b", "": "1024"}, id="a size in bytes"),
        pytest.param(codecs.MAC, "52-54-00-AA-BB-CC", "52:54:00:aa:bb:cc", id="a MAC address with hyphens"),
        pytest.param(codecs.MAC, "52:54:00:AA:BB:CC", "52:54:00:AA:BB:CC", id="a MAC address stays as it is"),
        pytest.param(codecs.has_alias("cdrom"), {}, "cdrom", id="an object that is a word in XML"),
        pytest.param(codecs.YES_NO, False, "no", id="a switch with yes and no"),
        pytest.param(codecs.ON_OFF, True, "on", id="a switch with on and off"),
        pytest.param(codecs.ON_OFF, False, "off", id="a switch that is off"),
    ],
)
def test_what_a_value_is_in_xml(codec: Codec, value: Any, xml: Any) -> None:
    assert codec.accepts(value)
    assert codec.encode(value) == xml


@pytest.mark.parametrize(
    ("codec", "xml", "value"),
    [
        pytest.param(fields.CPU_MODE, "host-model", "host-model", id="the mode of the host's CPU"),
        pytest.param(fields.CPU_MODE, "custom", None, id="a CPU with a name"),
        pytest.param(fields.CPU_NAME, "EPYC", "EPYC", id="the name of a CPU"),
        pytest.param(fields.CLOCK_ADJUSTMENT, "reset", {}, id="a clock that is set anew at each start"),
        pytest.param(fields.CLOCK_ADJUSTMENT, "7", {"offsetSeconds": 7}, id="a clock that differs"),
        pytest.param(fields.CLOCK_UTC, "utc", {}, id="a clock in UTC"),
        pytest.param(fields.CLOCK_ZONE, "timezone", None, id="a clock in a time zone, which another attribute names"),
        pytest.param(fields.LINK, "down", "down", id="a link that is down"),
        pytest.param(fields.NIC_MODEL, "virtio-non-transitional", "virtio", id="a model of the kind virtio"),
        pytest.param(fields.NIC_MODEL, "e1000e", "e1000e", id="another model"),
        pytest.param(codecs.FLAG, {}, True, id="an element that is there"),
        pytest.param(codecs.FLAG, None, False, id="an element that is not there"),
        pytest.param(codecs.FEATURE, {}, {}, id="a feature"),
        pytest.param(codecs.BYTES, {"unit": "KiB", "": "64"}, "64Ki", id="a size"),
        pytest.param(codecs.BYTES, {"unit": "b", "": "64"}, None, id="a size that libvirt has not written"),
        pytest.param(codecs.PCI, {"type": "drive"}, None, id="an address of another type"),
        pytest.param(codecs.PCI, {"type": "pci", "bus": "0x1f"}, "0000:1f:00.0", id="a PCI address with its bus alone"),
        pytest.param(codecs.has_alias("cdrom"), "cdrom", {}, id="an object that is a word in XML"),
        pytest.param(codecs.YES_NO, "maybe", None, id="another word than yes and no"),
        pytest.param(codecs.STATE, "off", {"enabled": False}, id="a feature that is off"),
    ],
)
def test_what_xml_is_as_a_value(codec: Codec, xml: Any, value: Any) -> None:
    assert codec.decode(xml) == value


@pytest.mark.parametrize(
    ("codec", "accepted", "rejected", "expected"),
    [
        (codecs.TEXT, ["", "a b"], [None, "a\x00"], "a string without control characters"),
        (codecs.COUNT, [0, 2**31 - 1], [-1, "1", None], "a whole number of at least 0"),
        (codecs.YES_NO, [True, False], [0, "yes", None], "true or false"),
        (codecs.FLAG, [True, False], [1, {}], "true or false"),
        (codecs.STATE, [{}, {"enabled": None}, {"enabled": True}], ["on", True], "an object such as {enabled: true}"),
        (codecs.FEATURE, [{}, {"enabled": False}], [[], {"enabled": 1}], "an object such as {enabled: true}"),
        (codecs.has_alias("disk"), [{}], ["disk", None], "an object"),
        (codecs.BYTES, ["1", "2Gi", 1, 2**63 - 1], ["0", 0, 2**63, "x", None], "a quantity such as 2Gi"),
        (codecs.MAC, ["52:54:00:12:34:56"], [1, "52:54:00:12:34"], "a MAC address such as 52:54:00:12:34:56"),
        (
            codecs.UUID,
            ["e4686d2c-6e8d-4335-b8fd-81bee22f4814", "E4686D2C-6E8D-4335-B8FD-81BEE22F4814"],
            [1, "e4686d2c6e8d4335b8fd81bee22f4814", "e4686d2c-6e8d-4335-b8fd-81bee22f4814 "],
            "a UUID such as e4686d2c-6e8d-4335-b8fd-81bee22f4814",
        ),
        (codecs.PCI, ["0000:0A:1f.7"], [1, "0000:0a:1f", "0000:0a:1f.8"], "a PCI address such as 0000:01:00.0"),
        (fields.CPU_MODE, ["EPYC"], [1, "a\x00"], "a string without control characters"),
        (fields.CPU_NAME, ["EPYC"], [1, "a\x00"], "a string without control characters"),
        (fields.CLOCK_ZONE, ["UTC"], [1, "a\x00"], "a string without control characters"),
        (
            fields.CLOCK_ADJUSTMENT,
            [{}, {"offsetSeconds": 7}],
            ["7", {"offsetSeconds": "7"}],
            "an object such as {offsetSeconds: 0}",
        ),
        (fields.CLOCK_UTC, [{}], ["utc", {"offsetSeconds": "7"}], "an object such as {offsetSeconds: 0}"),
        (codecs.one_of("b", "a"), ["a", "b"], ["c", 1, {}], "one of a, b"),
    ],
)
def test_which_values_a_codec_accepts(codec: Codec, accepted: list[Any], rejected: list[Any], expected: str) -> None:
    assert [value for value in accepted if not codec.accepts(value)] == []
    assert [value for value in rejected if codec.accepts(value)] == []
    assert codec.expected == expected


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        pytest.param("\t\n\r ~", True, id="white space"),
        pytest.param("\ud7ff\ue000\ufffd\U00010000\U0010ffff", True, id="the bounds of what XML has"),
        pytest.param("\x08", False, id="a control character before the tabulator"),
        pytest.param("\x0b", False, id="one after the line feed"),
        pytest.param("\x1f", False, id="one before the space"),
        pytest.param("\ud800", False, id="half a character"),
        pytest.param("\ufffe", False, id="no character"),
    ],
)
def test_text_that_xml_can_contain(text: str, valid: bool) -> None:
    assert codecs.is_xml_text(text) is valid


def test_addresses_are_compared_in_the_notation_of_libvirt() -> None:
    assert codecs.normalize_address("52-54-00-AA-BB-CC") == "52:54:00:aa:bb:cc"
