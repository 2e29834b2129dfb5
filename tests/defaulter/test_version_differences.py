"""Errors of libvirt that its version may cause, and errors that are the author's."""

from __future__ import annotations

from typing import Any

import pytest

from defaulter.json_paths import Path
from defaulter.version_differences import find_replacements
from tests.defaulter.builders import disk, nic, spec

DEVICES: Path = ("domain", "devices")


def content(**devices: Any) -> dict[str, Any]:
    given = spec(disk(), nic(), domain={"features": {"hyperv": {"synictimer": {}, "relaxed": {}}}})
    given["domain"]["devices"].update(devices)
    return given


@pytest.mark.parametrize(
    ("message", "devices", "replaced"),
    [
        pytest.param(
            "unsupported configuration: unknown panic model 'pvpanic'",
            {"panicDevices": [{"model": "hyperv"}, {"model": "pvpanic"}]},
            {(*DEVICES, "panicDevices", 1): None},
            id="a panic model of libvirt 9.1",
        ),
        pytest.param(
            "unsupported configuration: domain configuration does not support video model 'bochs'",
            {"video": {"type": "bochs"}},
            {(*DEVICES, "video", "type"): "vga"},
            id="a display adapter that this QEMU was built without",
        ),
        pytest.param(
            "unsupported configuration: domain configuration does not support video model 'ramfb'",
            {"video": {"type": "ramfb"}},
            {(*DEVICES, "video", "type"): "vga"},
            id="a display adapter that is no PCI device",
        ),
        pytest.param(
            "unsupported configuration: TPM model 'tpm-crb' is not supported by this QEMU binary",
            {"tpm": {}},
            {(*DEVICES, "tpm"): None},
            id="a TPM",
        ),
        pytest.param(
            "unsupported configuration: unsupported HyperV Enlightenment feature: stimer",
            {},
            {("domain", "features", "hyperv", "synictimer"): None},
            id="a Hyper-V feature by libvirt's name",
        ),
    ],
)
@pytest.mark.sentence("4.39")
def test_a_value_of_a_newer_version_has_a_neutral_one(
    message: str, devices: dict[str, Any], replaced: dict[Path, Any]
) -> None:
    found = find_replacements(message, content(**devices))
    assert {each.path: each.value for each in found} == replaced


@pytest.mark.parametrize(
    "message",
    [
        "unsupported configuration: IDE controllers are unsupported for this QEMU binary or machine type",
        "unsupported configuration: disk type of 'vda' does not support ejectable media",
        "unsupported configuration: disk device='lun' is only valid for block type disk source",
        "unsupported configuration: unknown watchdog action ''",
        "unsupported configuration: UEFI requires ACPI on this architecture",
        "unsupported configuration: Maximum CPUs greater than specified machine type limit 288",
        "unsupported configuration: boot order '1' used for more than one device",
        "XML error: Attempted double use of PCI Address 0000:05:00.0",
    ],
)
def test_an_error_of_the_author_has_none(message: str) -> None:
    every = content(panicDevices=[{"model": "pvpanic"}], video={"type": "bochs"}, tpm={}, sound={"model": "ich9"})
    assert find_replacements(message, every) == ()
