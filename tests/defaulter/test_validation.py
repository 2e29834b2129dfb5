"""Invalid documents: every problem with its path, and libvirt's own messages."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from defaulter.hook import HARDWARE_ANNOTATION
from poolhouse.api.apimachinery.unstructured import Json, at
from tests.defaulter.builders import disk, inner, nic, spec, vm, vmi
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt

D = "spec.template.spec.domain"


@pytest.mark.parametrize(
    ("content", "path", "sentence"),
    [
        pytest.param(
            spec(domain={"machine": {"type": "q36"}}),
            "machine.type",
            "does not support the machine type q36",
            id="a machine that QEMU does not have",
        ),
        pytest.param(
            spec(disk(pciAddress="0000:05:01.0")),
            "devices.disks[0].disk.pciAddress",
            "Invalid PCI address 0000:05:01.0. slot must be <= 0",
            id="a slot that a root port does not have",
        ),
        pytest.param(
            spec(nic(pciAddress="0001:05:00.0")),
            "devices.interfaces[0].pciAddress",
            "Only PCI domain 0 is available",
            id="another PCI domain",
        ),
        pytest.param(
            spec(disk(pciAddress="0000:00:1f.2")),
            "devices.disks[0].disk.pciAddress",
            "0000:00:1f.2",
            id="the address of the SATA controller",
        ),
        pytest.param(
            spec(disk(pciAddress="0000:81:00.0")),
            "devices.disks[0].disk.pciAddress",
            "the last bus is 0x1f",
            id="a bus that would take 129 ports",
        ),
        pytest.param(
            spec(disk(bus="sata", pciAddress="0000:05:00.0")),
            "devices.disks[0].disk.pciAddress",
            "only a disk on the bus virtio",
            id="an address on the wrong bus",
        ),
        pytest.param(spec(disk(bus="floppy")), "devices.disks[0].disk.bus", "must be one of", id="an unknown bus"),
        pytest.param(spec(disk(bus="ide")), "devices.disks[0].disk.bus", "must be one of", id="IDE, which q35 lacks"),
        pytest.param(
            spec(nic(model="e2000")), "devices.interfaces[0].model", "must be one of", id="an unknown NIC model"
        ),
        pytest.param(
            spec(nic(macAddress="zz")), "devices.interfaces[0].macAddress", "must be a MAC address", id="no MAC address"
        ),
        pytest.param(
            spec(nic(macAddress="01:00:5e:00:00:01")),
            "devices.interfaces[0].macAddress",
            "must be a unicast MAC address",
            id="a multicast MAC address",
        ),
        pytest.param(
            spec(domain={"cpu": {"features": [{"name": "vmx"}, {"name": "<vmx'"}]}}),
            "cpu.features[1].name",
            "must be the name of a CPU feature",
            id="a CPU feature of a name that no feature has",
        ),
        pytest.param(
            spec(domain={"cpu": {"sockets": 2, "cores": 4096}}),
            "cpu",
            "at most 4096 are allowed",
            id="more CPUs than any QEMU has",
        ),
        pytest.param(
            spec(domain={"cpu": {"cores": "2"}}), "cpu.cores", "must be a whole number", id="a string of a number"
        ),
        pytest.param(spec(domain={"cpu": {"cores": 2**40}}), "cpu.cores", "must be a whole number", id="2^40 cores"),
        pytest.param(
            spec(domain={"memory": {"guest": "lots"}}), "memory.guest", "must be a quantity", id="no quantity"
        ),
        pytest.param(
            spec(domain={"memory": {"guest": "-1"}}), "memory.guest", "must be a quantity", id="negative memory"
        ),
        pytest.param(spec(domain={"firmware": {"uuid": "abc"}}), "firmware.uuid", "must be a UUID", id="no UUID"),
        pytest.param(
            spec(domain={"firmware": {"serial": "a\x07b"}}),
            "firmware.serial",
            "without control characters",
            id="a bell in a serial",
        ),
        pytest.param(
            spec(domain={"devices": {"filesystems": [{"name": "a\x00b", "virtiofs": {}}]}}),
            "devices.filesystems[0].name",
            "without control characters",
            id="a null character in the name of a filesystem",
        ),
        pytest.param(spec(disk(serial="\ud800")), "devices.disks[0].serial", "lone surrogate", id="a lone surrogate"),
        pytest.param(
            spec(domain={"devices": {"watchdog": {"name": "w", "i6300esb": {"action": "explode"}}}}),
            "devices.watchdog.i6300esb.action",
            "must be one of",
            id="an unknown watchdog action",
        ),
        pytest.param(
            spec(disk("a"), {**disk("a"), "name": "a"}),
            "devices.disks[1].name",
            "Duplicate value",
            id="two disks of one name",
        ),
        *(
            pytest.param(
                spec(domain={"devices": {kind: [{"name": "a"}, {"name": "b"}, {"name": "a"}]}}),
                f"devices.{kind}[2].name",
                "Duplicate value",
                id=f"two {kind} of one name",
            )
            for kind in ("gpus", "hostDevices", "filesystems")
        ),
        *(
            pytest.param(
                spec(domain={"devices": {kind: [{"name": "a"}, unnamed]}}),
                f"devices.{kind}[1].name",
                "is required",
                id=f"{kind} without a name: {unnamed}",
            )
            for kind in ("gpus", "hostDevices", "filesystems")
            for unnamed in ({"deviceName": "d"}, {"name": ""}, {"name": None})
        ),
        pytest.param(
            spec(disk("a"), nic("a")),
            "devices.interfaces[0].name",
            "Duplicate value",
            id="a disk and a NIC of one name",
        ),
        pytest.param(
            spec(disk("a", bootOrder=1), nic("b", bootOrder=1)),
            "devices.interfaces[0].bootOrder",
            "Duplicate value",
            id="boot order",
        ),
        pytest.param(
            spec(nic("a", macAddress="52:54:00:00:00:01"), nic("b", macAddress="52-54-00-00-00-01")),
            "devices.interfaces[1].macAddress",
            "Duplicate value",
            id="one MAC address in two spellings",
        ),
        pytest.param(
            spec(nic("a", macAddress="52:54:00:00:00:ab"), nic("b", macAddress="5254.0000.00AB")),
            "devices.interfaces[1].macAddress",
            "Duplicate value",
            id="one MAC address in words of 16 bits",
        ),
        pytest.param(
            spec(nic("a", macAddress="52:54-00:00:00:01")),
            "devices.interfaces[0].macAddress",
            "must be a MAC address",
            id="a MAC address with two separators",
        ),
        pytest.param(
            spec(disk("a", pciAddress="0000:05:00.0"), nic("b", pciAddress="0000:05:00.0")),
            "devices.interfaces[0].pciAddress",
            "Duplicate value",
            id="one PCI address twice",
        ),
        pytest.param(
            spec({"name": "l", "lun": {"bus": "sata"}}),
            "devices.disks",
            "lun",
            id="a LUN on a bus that cannot have one",
        ),
        pytest.param(spec(architecture="vax"), None, "must be one of", id="an unknown architecture"),
        pytest.param(spec(architecture={"a": 1}), None, "must be one of", id="an architecture that is an object"),
        pytest.param(
            spec({"name": "x", "disk": {"bus": "virtio"}, "cdrom": {}}),
            "devices.disks[0]",
            "must be only one of",
            id="disk and CD",
        ),
    ],
)
def test_an_invalid_spec_is_reported_by_path(
    libvirt: Libvirt, content: dict[str, Any], path: str | None, sentence: str
) -> None:
    import re

    answer = libvirt.default(vm(content))
    assert answer.status == 422
    expected = "spec.template.spec.architecture" if path is None else f"{D}.{path}"
    assert expected in answer.problems, answer.problems
    assert re.search(sentence, answer.problems[expected])


def test_a_disk_without_a_volume_and_a_nic_without_a_network(libvirt: Libvirt) -> None:
    content = spec(disk(), {"name": "cd", "cdrom": {}}, nic())
    content |= {"volumes": [], "networks": []}
    assert set(libvirt.default(vm(content)).problems) == {
        f"{D}.devices.disks[0].name",
        f"{D}.devices.interfaces[0].name",
    }


def test_ten_thousand_disks_are_rejected_at_once(libvirt: Libvirt) -> None:
    answer = libvirt.default(vm(spec(*(disk(f"d{index}") for index in range(10_000)))))
    assert "at most 256" in answer.problems[f"{D}.devices.disks"]


def test_a_disk_s_serial_is_what_libvirt_allows(libvirt: Libvirt) -> None:
    path = f"{D}.devices.disks[0].serial"
    assert "contains unsafe characters" in libvirt.default(vm(spec(disk(serial="<a>&'\"")))).problems[path]


@pytest.mark.parametrize("kind", ["Pod", "VirtualMachines", "", None, 3, ["VirtualMachine"]])
def test_other_kinds_are_rejected(libvirt: Libvirt, kind: Any) -> None:
    answer = libvirt.default({"kind": kind, "spec": {}})
    assert answer.status == 422
    assert "kind" in answer.problems


WRONG = [None, 3, "x", True, [], {}, [3], [None], {"a": 1}]


PLACES = [
    "spec",
    "spec.template",
    "spec.template.spec",
    "spec.template.metadata",
    "metadata",
    D,
    *(f"{D}.{part}" for part in ("cpu", "memory", "firmware", "machine", "clock", "features", "devices", "resources")),
    *(f"{D}.devices.{part}" for part in ("disks", "interfaces", "inputs", "watchdog", "sound", "video", "rng", "tpm")),
    f"{D}.cpu.features",
    f"{D}.devices.panicDevices",
    "spec.template.spec.volumes",
    "spec.template.spec.networks",
]


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_wrong_type_is_a_problem_or_ignored(libvirt: Libvirt, path: str, value: Any) -> None:
    assert libvirt.default(replaced(vm(spec(disk(), nic())), path, value)).status in (200, 422)


def replaced(document: Json, path: str, value: Any) -> Json:
    """A copy with another value at the path, whose missing objects are created."""
    found = deepcopy(document)
    *above, last = path.split(".")
    place = found
    for step in above:
        place = place.setdefault(step, {})
    place[last] = value
    return found


NAMES = (f"{D}.devices.disks", f"{D}.devices.interfaces", "spec.template.spec.volumes", "spec.template.spec.networks")


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstance"])
@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("devices", [{}, {"watchdog": {"name": "dog"}}], ids=["no bridge", "bridge"])
def test_a_stored_document_of_wrong_types_does_not_fail_an_edit(
    libvirt: Libvirt, kind: str, path: str, devices: Json
) -> None:
    """Nor does a VMI, into whose domain the edit would hotplug the added disk."""
    content = spec(disk(), nic(), domain={"devices": devices})
    is_vm = kind == "VirtualMachine"
    stored = libvirt.default(vm(content) if is_vm else vmi(content)).object
    runs = vmi(at(stored, *("spec", "template", "spec") if is_vm else ("spec",)))
    edited = deepcopy(stored)
    inner(edited)["domain"]["devices"]["disks"].append(disk("more"))
    inner(edited)["volumes"].append({"name": "more", "emptyDisk": {"capacity": "1Mi"}})
    inside = path.removeprefix("spec.template.") if path != "spec.template" else "spec"
    nameless: Json = {"model": "virtio", "disk": {"bus": "virtio"}, "pod": {}}
    for value in (None, 3, [3], {"a": 1}, *([{**nameless, "name": name}] for name in ([], {}, 3) if path in NAMES)):
        old, running = replaced(stored, path if is_vm else inside, value), replaced(runs, inside, value)
        for given in ({"oldObject": stored, "vmi": running}, {"oldObject": old, "vmi": runs}):
            assert libvirt.default(edited, **given).status == 200, given


def test_a_vmi_of_values_that_no_domain_can_have_is_unknown(libvirt: Libvirt) -> None:
    stored = libvirt.default(vm(spec(disk()))).object
    edited = deepcopy(stored)
    inner(edited)["domain"]["devices"]["disks"].append(disk("more"))
    inner(edited)["volumes"].append({"name": "more", "emptyDisk": {"capacity": "1Mi"}})
    for path, value in (("cpu.sockets", "a"), ("firmware.serial", "\x00"), ("memory.guest", "-1")):
        runs = replaced(vmi(inner(stored)), f"spec.domain.{path}", value)
        assert libvirt.default(edited, oldObject=stored, vmi=runs).status == 200, path
    runs = vmi(inner(stored), annotations={HARDWARE_ANNOTATION: {}})
    assert libvirt.default(edited, oldObject=stored, vmi=runs).status == 200


@pytest.mark.parametrize(
    ("cpus", "problem", "warning"),
    [
        pytest.param(None, None, "does not know the CPU model 'Z80'", id="the nodes are unknown"),
        pytest.param({"models": ["Z80"], "features": []}, None, None, id="a node's libvirt knows it"),
        pytest.param(
            {"models": ["Haswell"], "features": []}, "no libvirt knows the CPU model 'Z80'", None, id="no node"
        ),
    ],
)
def test_a_cpu_model_that_this_libvirt_does_not_know(
    libvirt: Libvirt, cpus: dict[str, Any] | None, problem: str | None, warning: str | None
) -> None:
    known = {} if cpus is None else {"cpus": cpus}
    answer = libvirt.default(vm(spec(domain={"cpu": {"model": "Z80"}})), **known)
    if problem is not None:
        assert problem in answer.problems[f"{D}.cpu.model"]
        return
    assert inner(answer.object)["domain"]["cpu"]["model"] == "Z80"
    assert [str(warning) in each for each in answer.warnings] == ([True] if warning is not None else [])


def test_metadata_and_device_names_of_other_types_have_their_paths(libvirt: Libvirt) -> None:
    document = vm(spec(disk(), domain={"devices": {"hostDevices": [{"name": "a", "deviceName": {}}]}}))
    document["spec"]["template"]["metadata"] = 1.5
    assert libvirt.default(document).problems == {
        "spec.template.metadata": "must be an object, not a number",
        f"{D}.devices.hostDevices[0].deviceName": "must be a string, not an object",
    }


def test_a_cpu_feature_that_a_node_knows_needs_no_warning(libvirt: Libvirt) -> None:
    document = vm(spec(domain={"cpu": {"features": [{"name": "teleport"}]}}))
    assert "does not know the CPU feature 'teleport'" in str(libvirt.default(document).warnings)
    assert not libvirt.default(document, cpus={"models": ["Haswell"], "features": ["teleport"]}).warnings


def test_a_panic_model_that_this_libvirt_may_not_know(libvirt: Libvirt) -> None:
    content = spec(disk(), nic())
    content["domain"]["devices"]["panicDevices"] = [{"model": "isa"}, {"model": "pvpanic"}]
    answer = libvirt.default(vm(content))
    devices = inner(answer.object)["domain"]["devices"]
    assert devices["panicDevices"] == [{"model": "isa"}, {"model": "pvpanic"}]
    if "is too old" in str(answer.warnings):
        assert "pciAddress" not in devices["interfaces"][0], "where the unknown device goes is unknown"
    content["domain"]["devices"]["disks"].append({"name": "nowhere", "disk": {}})
    assert list(libvirt.default(vm(content)).problems) == [f"{D}.devices.disks[1].name"], "only the author's error"


def test_the_serial_of_a_lun_is_not_the_guests(libvirt: Libvirt) -> None:
    lun = {"name": "root", "lun": {"bus": "scsi"}, "serial": "S1"}
    assert libvirt.default(vm(spec(lun))).status == 200, "KubeVirt drops it"
    assert "S1" not in libvirt.domain(vm(spec(lun)))
    assert "S1" in libvirt.domain(vm(spec({**disk(), "serial": "S1"})))
