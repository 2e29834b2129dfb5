"""VMs whose hardware depends on details of how KubeVirt defines a domain. The expected addresses are those that a VM
without any address gets from KubeVirt 1.9's virt-launcher."""

from __future__ import annotations

from typing import Any

import pytest

from defaulter import hook, xml
from defaulter.contract import undefaulted_fields
from tests.defaulter.builders import addresses, disk, nic, spec, vm
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt

Json = dict[str, Any]

USB = {"spec": {"configuration": {"permittedHostDevices": {"usb": [{"resourceName": "vendor.com/stick"}]}}}}
GPU = {"gpus": [{"name": "gpu", "deviceName": "vendor.com/gpu"}]}
WATCHDOG = {"watchdog": {"name": "dog", "i6300esb": {}}}
AC97 = {"sound": {"name": "card", "model": "ac97"}}
SATA = [disk(f"s{number}", "sata") for number in range(7)]
NICS = [nic("n0"), *({"name": f"n{number}", "bridge": {}} for number in range(1, 5))]
SHARED: Json = {
    **spec(disk(), nic(), domain={"devices": {"filesystems": [{"name": "fs", "virtiofs": {}}]}}),
    "volumes": [
        {"name": "root", "emptyDisk": {"capacity": "1Mi"}},
        {"name": "fs", "persistentVolumeClaim": {"claimName": "fs"}},
    ],
}


def having(*devices: Json, **more: Any) -> Json:
    return vm(spec(*(devices or (disk(), nic())), domain={"devices": more}))


def places(libvirt: Libvirt, document: Json) -> Json:
    """The addresses of a domain's devices, those on PCI as bus and slot."""
    record = hook.read_record(hook.build_record(xml.read(libvirt.domain(document, kubevirt=USB)), "", ""))
    found = {f"{each['type']} {each['index']}": each.get("address", {}) for each in record["controllers"]}
    for key, address in record["addresses"].items():
        kind, _, name = key.partition(" ")
        found[name.removeprefix("ua-") if name.startswith("ua-") else kind] = address
    return {
        key: f"{int(each['bus'], 16):02x}.{int(each['slot'], 16):x}" if each.get("type") == "pci" else each
        for key, each in found.items()
    }


@pytest.mark.parametrize(
    ("document", "written", "expected"),
    [
        pytest.param(
            having(**AC97, **GPU),
            {"root": None, "default": "0000:02:00.0"},
            {"root": "09.0", "gpu-gpu": "0a.0", "card": "06.1", "memballoon": "0b.0"},
            id="the sound card's bridge precedes the disk, whose address would move the bridge",
        ),
        pytest.param(
            having(**WATCHDOG),
            {"root": "0000:08:00.0", "default": "0000:02:00.0"},
            {"root": "08.0", "memballoon": "09.0", "dog": "0a.1"},
            id="the watchdog's bridge follows the balloon",
        ),
        pytest.param(
            having(**WATCHDOG, autoattachMemBalloon=False),
            {"root": None, "default": "0000:02:00.0"},
            {"root": "08.0", "dog": "09.1"},
            id="the watchdog's bridge follows the disk",
        ),
        pytest.param(
            having(**WATCHDOG, autoattachMemBalloon=False, rng={}),
            {"root": "0000:08:00.0", "default": "0000:02:00.0"},
            {"root": "08.0", "rng": "09.0", "dog": "0a.1"},
            id="the watchdog's bridge follows the random number generator",
        ),
        pytest.param(
            having(disk(), nic(), *SATA, **GPU),
            {"root": None, "default": "0000:02:00.0"},
            {"root": "09.0", "gpu-gpu": "0a.0", "sata 1": "08.1", "memballoon": "0b.0"},
            id="a second SATA controller is behind a bridge",
        ),
        pytest.param(
            having(disk(), *NICS, *SATA),
            {"root": None, "n0": "0000:02:00.0", "n4": "0000:06:00.0"},
            {"root": "0a.0", "sata 1": "09.1", "memballoon": "0b.0"},
            id="a second SATA controller is behind a bridge if no NIC keeps a place free",
        ),
        pytest.param(
            having(autoattachVSOCK=True),
            {"root": "0000:07:00.0", "default": "0000:01:00.0"},
            {"vsock": "02.0", "memballoon": "08.0"},
            id="a vsock device gets the place of a NIC that does not exist",
        ),
        pytest.param(
            vm(SHARED),
            {"root": "0000:08:00.0", "default": "0000:02:00.0"},
            {"root": "08.0"},
            id="a shared filesystem precedes the NIC",
        ),
        pytest.param(
            having(hostDevices=[{"name": "stick", "deviceName": "vendor.com/stick"}]),
            {"root": "0000:08:00.0", "default": "0000:01:00.0"},
            {"usb 0": "05.0", "root": "08.0", "memballoon": "09.0"},
            id="a USB host device needs a USB controller and no port of its own",
        ),
        pytest.param(
            having(hostDevices=[{"name": "card", "deviceName": "vendor.com/card"}]),
            {"root": "0000:07:00.0", "default": "0000:01:00.0"},
            {"hostdevice-card": "08.0", "memballoon": "09.0"},
            id="another host device needs a port",
        ),
        pytest.param(
            having(clientPassthrough={}, inputs=[{"name": "pen", "type": "tablet", "bus": "usb"}]),
            {"root": "0000:08:00.0"},
            {"pen": {"type": "usb", "bus": "0", "port": "2"}},
            id="redirected USB devices need a hub",
        ),
        pytest.param(
            having(disk("a", "sata"), nic(model="e1000e"), useVirtioTransitional=True),
            {"a": None, "default": None},
            {"default": "02.0", "memballoon": "03.6", "scsi 0": "03.4"},
            id="transitional controllers are behind a bridge",
        ),
    ],
)
def test_the_addresses_are_those_that_kubevirt_gives(
    libvirt: Libvirt, document: Json, written: Json, expected: Json
) -> None:
    answer = libvirt.default(document, kubevirt=USB)
    before, after = places(libvirt, document), places(libvirt, answer.object)
    assert {key: before.get(key) for key in expected} == expected
    assert after == before, "with the written addresses, every device stays where it would be without them"
    found = addresses(answer.object)
    assert {name: found[name] for name in written} == written
    assert undefaulted_fields(answer.object) == []
    assert any("no PCI address is set" in warning for warning in answer.warnings) == (None in written.values())
    assert libvirt.default(answer.object, kubevirt=USB).object == answer.object


def test_a_cdrom_drive_that_kubevirt_cannot_start_is_refused(libvirt: Libvirt) -> None:
    drive = {"name": "cd", "cdrom": {"bus": "usb"}}
    answer = libvirt.default(having(disk(), nic(), drive))
    assert answer.status == 422
    assert ["USB is disabled" in message for message in answer.problems.values()] == [True]


def test_a_cdrom_drive_gets_its_scsi_unit_from_libvirt(libvirt: Libvirt) -> None:
    disks = [disk(f"d{number}", "scsi") for number in range(7)]
    found = places(libvirt, having(disk(), nic(), *disks, {"name": "cd", "cdrom": {"bus": "scsi"}}))
    assert (found["d6"]["controller"], found["d6"]["unit"]) == ("0", "6")
    assert (found["cd"]["controller"], found["cd"]["unit"]) == ("1", "0")
