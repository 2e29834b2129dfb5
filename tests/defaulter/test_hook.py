"""The hardware record and the hook that restores it, through virt-launcher's defines, with a real libvirt."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from defaulter import hook
from defaulter.contract import HARDWARE_ANNOTATION, forbidden_changes
from defaulter.defaulting import FOREIGN_RECORD
from tests.defaulter.builders import disk, inner, nic, spec, vm
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt

Json = dict[str, Any]


def record(document: Json) -> str:
    found: str = document["spec"]["template"]["metadata"]["annotations"][HARDWARE_ANNOTATION]
    return found


def places(libvirt: Libvirt, document: Json) -> dict[str, dict[str, str]]:
    """Where each device is after all passes of a start."""
    domain = etree.fromstring(libvirt.domain(document))
    addresses: dict[str, dict[str, str]] = hook.read_record(hook.build_record(domain, "", ""))["addresses"]
    return addresses


RICH = {
    "devices": {
        "rng": {},
        "watchdog": {"name": "dog"},
        "sound": {"name": "card", "model": "ac97"},
        "inputs": [{"name": "tablet", "bus": "virtio", "type": "tablet"}],
    }
}


def rich(*extra: Json, first: Json | None = None) -> Json:
    devices = (disk("root"), disk("sata", bus="sata"), disk("scsi", bus="scsi"), nic())
    return spec(*((first,) if first else ()), *devices, *extra, domain=RICH)


def test_a_record_is_small_and_has_nothing_of_the_host(recording: Libvirt) -> None:
    answer = recording.default(vm(rich())).object
    text = record(answer)
    assert len(text) < 6000
    assert not [word for word in ("/source", "/usr", "/vnc", "/serial", "qemu-system") if word in text]
    assert forbidden_changes(vm(rich()), answer) == []


def test_a_second_request_changes_no_byte(recording: Libvirt) -> None:
    once = recording.default(vm(rich())).object
    assert recording.default(once).object == once


@pytest.mark.parametrize("nics", [0, 1, 2, 5])
@pytest.mark.parametrize("memory", ["128Mi", "4Gi"])
def test_spare_ports_are_not_doubled(recording: Libvirt, nics: int, memory: str) -> None:
    devices = (disk("root"), disk("sata", bus="sata"), *(nic(f"net{n}") for n in range(nics)))
    document = vm(spec(*devices, domain={"memory": {"guest": memory}}))
    once = recording.default(document).object
    assert recording.default(once).object == once
    assert ports(recording, once) == ports(recording, document)
    once["spec"]["template"]["metadata"]["annotations"][HARDWARE_ANNOTATION] = older = forged(
        record(once), controllers=ports(recording, document)
    )
    assert ports(recording, once) == ports(recording, document), "as they were recorded before"
    assert record(recording.default(once).object) == older


def ports(libvirt: Libvirt, document: Json) -> list[Json]:
    """All that a start gives the guest, the recorded ones and KubeVirt's own."""
    domain = etree.fromstring(libvirt.domain(document))
    return [hook._controller(each) for each in domain.iterfind("devices/controller")]


def test_without_the_setting_nothing_is_recorded(libvirt: Libvirt) -> None:
    assert "metadata" not in libvirt.default(vm(rich())).object["spec"]["template"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(rich(first=disk("new")), id="a virtio disk in front"),
        pytest.param(rich(first=disk("new", bus="sata")), id="a SATA disk in front"),
        pytest.param(rich(first=disk("new", bus="scsi")), id="a SCSI disk in front"),
        pytest.param(rich(nic("new")), id="another NIC"),
        pytest.param(rich(nic("new"), disk("newer")), id="a NIC and a disk"),
    ],
)
def test_adding_a_device_moves_no_other(recording: Libvirt, change: Json) -> None:
    stored = recording.default(vm(rich())).object
    before = places(recording, stored)
    changed = recording.default(vm(change), oldObject=stored).object
    after = places(recording, changed)
    assert {key: after[key] for key in before} == before
    assert len(after) > len(before)
    assert hook.read_record(record(changed))["addresses"] == after, "the record knows the new devices too"
    edited = vm(
        change, annotations={HARDWARE_ANNOTATION: record(stored)}
    )  # whoever edits what is stored sends its record along
    answer = recording.default(edited, oldObject=stored).object
    assert answer == changed
    assert forbidden_changes(edited, answer) == []


def test_without_a_record_the_balloon_moves(libvirt: Libvirt) -> None:
    """Shows that the test above can fail."""
    stored = libvirt.default(vm(rich())).object
    before = places(libvirt, stored)
    after = places(libvirt, libvirt.default(vm(rich(first=disk("new", bus="sata"))), oldObject=stored).object)
    assert {key: after.get(key) for key in before} != before


def test_removing_a_device_moves_no_other(recording: Libvirt) -> None:
    stored = recording.default(vm(rich())).object
    before = places(recording, stored)
    changed = recording.default(vm(spec(disk("scsi", bus="scsi"), nic(), domain=RICH)), oldObject=stored).object
    after = places(recording, changed)
    assert after == {key: before[key] for key in after}
    assert "disk ua-root" not in after


def test_a_conventional_pci_nic_does_not_move(recording: Libvirt) -> None:
    stored = recording.default(vm(spec(disk("root"), nic(model="e1000")))).object
    before = places(recording, stored)
    grown = vm(spec(disk("new"), disk("root"), nic(model="e1000")))
    after = places(recording, recording.default(grown, oldObject=stored).object)
    assert {key: after[key] for key in before} == before


def forged(text: str, **change: Any) -> str:
    """A record with other content and a valid digest. None removes a key."""
    content = {key: value for key, value in {**json.loads(text), **change}.items() if value is not None}
    del content["digest"]
    return hook._text({**content, "digest": hook._digest(content)})


BECOMES = [
    pytest.param(disk("x"), disk("x", bus="sata"), "drive", id="a virtio disk on SATA"),
    pytest.param(disk("x"), disk("x", bus="scsi"), "drive", id="a virtio disk on SCSI"),
    pytest.param(disk("x"), disk("x", bus="usb"), "usb", id="a virtio disk on USB"),
    pytest.param(disk("x", bus="sata"), disk("x"), "pci", id="a SATA disk on virtio"),
    pytest.param(disk("x", bus="sata"), disk("x", bus="usb"), "usb", id="a SATA disk on USB"),
    pytest.param(disk("x", bus="usb"), disk("x"), "pci", id="a USB disk on virtio"),
    pytest.param(disk("x", bus="usb"), disk("x", bus="sata"), "drive", id="a USB disk on SATA"),
]
LIKEWISE = [
    pytest.param(disk("x", bus="scsi"), disk("x", bus="sata"), "drive", id="a SCSI disk on SATA"),
    pytest.param(disk("x", bus="sata"), disk("x", bus="scsi"), "drive", id="a SATA disk on SCSI"),
    pytest.param(nic("x"), nic("x", model="e1000"), "pci", id="a NIC that is conventional now"),
    pytest.param(nic("x", model="e1000"), nic("x", model="virtio"), "pci", id="a NIC that was conventional"),
]


@pytest.mark.parametrize(("before", "after", "kind"), [*BECOMES, *LIKEWISE])
def test_a_device_with_another_bus_gets_an_address_of_that_bus(
    recording: Libvirt, before: Json, after: Json, kind: str
) -> None:
    others = [disk(f"sata{n}", bus="sata") for n in range(6)] + [disk("scsi", bus="scsi"), disk("last"), nic()]
    stored = recording.default(vm(spec(*others, before))).object
    was = places(recording, stored)
    changed = recording.default(vm(spec(*others, after)), oldObject=stored).object
    now = places(recording, changed)
    element = "disk" if "disk" in after else "interface"
    moved = now.pop(f"{element} ua-x")
    assert moved["type"] == kind
    assert moved != was.pop(f"{element} ua-x")
    assert now == was
    assert recording.default(changed).object == changed


@pytest.mark.parametrize(("before", "after", "kind"), BECOMES)
def test_an_old_record_without_models_still_restores_addresses(
    recording: Libvirt, before: Json, after: Json, kind: str
) -> None:
    """A record of a version without buses and models."""
    stored = recording.default(vm(spec(before, nic()))).object
    older = forged(record(stored), models=None)
    stored["spec"]["template"]["metadata"]["annotations"][HARDWARE_ANNOTATION] = older
    assert recording.default(stored).object == stored, "it describes the hardware still, and stands"
    changed = recording.default(vm(spec(after, nic())), oldObject=stored).object
    assert places(recording, changed)["disk ua-x"]["type"] == kind


@pytest.mark.parametrize("service", ["recording", "libvirt"])
def test_a_damaged_record_is_refused(recording: Libvirt, service: str, request: pytest.FixtureRequest) -> None:
    stored = recording.default(vm(rich())).object
    document = deepcopy(stored)
    annotations = document["spec"]["template"]["metadata"]["annotations"]
    annotations[HARDWARE_ANNOTATION] = annotations[HARDWARE_ANNOTATION].replace("0x00", "0x01", 1)
    asked: Libvirt = request.getfixturevalue(service)
    for answer in (asked.default(document), asked.default(document, oldObject=stored)):
        assert list(answer.problems) == [f"spec.template.metadata.annotations.{HARDWARE_ANNOTATION}"]
    assert asked.default(document, oldObject=document).object == document, "what is stored can be edited"


def run(instance: Json, domain: str) -> subprocess.CompletedProcess[str]:
    """As KubeVirt's shim runs it: an executable of its own, with nothing of ours to import."""
    command = [sys.executable, "-I", "-S", hook.__file__, "--vmi", json.dumps(instance), "--domain", domain]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd="/")


BARE = """<domain xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0">
<os><type machine="q35">hvm</type></os><devices>
<disk><target dev="vda" bus="virtio"/><alias name="ua-root"/></disk>
<memballoon model="virtio-non-transitional"/></devices>
<qemu:commandline><qemu:arg value="-x"/></qemu:commandline></domain>"""


def test_the_hook_is_self_contained_and_idempotent(recording: Libvirt) -> None:
    text = record(recording.default(vm(rich())).object)
    instance = {"metadata": {"annotations": {HARDWARE_ANNOTATION: text}}}
    done = run(instance, BARE)
    assert done.returncode == 0, done.stderr
    root = etree.fromstring(done.stdout)
    assert root.find("devices/disk/address") is not None
    assert root.find("devices/controller[@type='pci']") is not None
    assert root.find("{http://libvirt.org/schemas/domain/qemu/1.0}commandline") is not None
    assert run(instance, done.stdout).stdout == done.stdout


def test_a_vm_without_a_record_does_not_change() -> None:
    assert run({"metadata": {}}, BARE).stdout == BARE
    assert run({"metadata": {"annotations": None}}, BARE).stdout == BARE


def test_a_domain_of_another_machine_type_does_not_change(recording: Libvirt) -> None:
    text = record(recording.default(vm(rich())).object)
    other = BARE.replace("q35", "pc-i440fx-7.2")
    assert hook.restore_hardware(text, other) == other


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"v": 1, "digest": "x"}', "[" * 100_000])
def test_a_damaged_record_fails_the_define(text: str) -> None:
    done = run({"metadata": {"annotations": {HARDWARE_ANNOTATION: text}}}, BARE)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "damaged" in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"controllers": [{"type": "pci"}]},
        {"controllers": [{"type": "pci", "index": 0}]},
        {"controllers": [{"type": "pci", "index": "first"}]},
        {"controllers": [{"type": "pci", "index": "0", "address": "0000:01:00.0"}]},
        {"controllers": [{"type": "pci", "index": "0", "address": {"slot": "\x00"}}]},
        {"controllers": [{"type": "pci", "index": "0", "address": {"slot": ["1"]}}]},
        {"controllers": ["pci"]},
        {"controllers": 3},
        {"addresses": {"disk ua-root": "0000:01:00.0"}},
        {"addresses": {"disk ua-root": {"sl ot": "1"}}},
        {"addresses": []},
        {"models": ["virtio"]},
        {"models": {"disk ua-root": {"bus": "virtio"}}},
        {"machine": None},
        {"machine": 7},
    ],
)
def test_a_valid_digest_does_not_make_a_record(recording: Libvirt, change: Json) -> None:
    """Anyone can compute the digest, so the content must have the form of a record."""
    document = recording.default(vm(rich())).object
    text = forged(record(document), **change)
    with pytest.raises(hook.InvalidHardwareRecord):
        hook.restore_hardware(text, BARE)
    document["spec"]["template"]["metadata"]["annotations"][HARDWARE_ANNOTATION] = text
    assert list(recording.default(document).problems) == [f"spec.template.metadata.annotations.{HARDWARE_ANNOTATION}"]


HUGE = str(2**31 - 1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"controllers": [{"type": "scsi", "index": HUGE}]}, "controllers[0].index: 2147483647; at most 63"),
        ({"controllers": [{"type": "scsi", "index": "64"}]}, "controllers[0].index: 64; at most 63"),
        ({"controllers": [{"type": "pci", "index": "256"}]}, "controllers[0].index: 256; at most 255"),
        ({"controllers": [{"type": "pci", "index": "1", "target": {"port": "0x100"}}]}, "target.port: 0x100"),
        ({"controllers": [{"type": "scsi", "index": str(n)} for n in range(513)]}, "controllers: 513 entries"),
        ({"addresses": {"disk ua-a": {"type": "drive", "controller": HUGE}}}, "addresses[disk ua-a].controller"),
        ({"addresses": {"disk ua-a": {"type": "pci", "slot": "x"}}}, "addresses[disk ua-a].slot: x; at most 31"),
        ({"addresses": {f"disk ua-{n}": {} for n in range(2049)}}, "addresses: 2049 entries"),
        ({"models": {f"disk ua-{n}": "" for n in range(2049)}}, "models: 2049 entries"),
    ],
)
def test_a_record_has_no_more_than_a_vm(recording: Libvirt, change: Json, told: str) -> None:
    document = recording.default(vm(rich())).object
    text = forged(record(document), **change)
    document["spec"]["template"]["metadata"]["annotations"][HARDWARE_ANNOTATION] = text
    ((path, message),) = recording.default(document).problems.items()
    assert path == f"spec.template.metadata.annotations.{HARDWARE_ANNOTATION}"
    assert told in message
    assert told in run({"metadata": {"annotations": {HARDWARE_ANNOTATION: text}}}, BARE).stderr


def test_the_port_of_a_usb_device_may_have_several_parts() -> None:
    content = {"v": 1, "libvirt": "", "qemu": "", "machine": "", "controllers": []}
    addresses = {"input ua-a": {"type": "usb", "bus": "0", "port": "1.2.3"}}
    text = hook._text({**content, "addresses": addresses})
    text = hook._text({**json.loads(text), "digest": hook._digest(json.loads(text))})
    assert hook.read_record(text)["addresses"] == addresses


# Records of a cluster with a secret


def with_record(text: str) -> Json:
    document = vm(rich())
    document["spec"]["template"]["metadata"] = {"annotations": {HARDWARE_ANNOTATION: text}}
    return document


def test_a_sealed_record_is_the_clusters_own(sealing: Libvirt) -> None:
    text = record(sealing.default(vm(rich())).object)
    answer = sealing.default(with_record(text))
    assert record(answer.object) == text
    assert FOREIGN_RECORD not in answer.warnings
    assert run({"metadata": {"annotations": {HARDWARE_ANNOTATION: text}}}, BARE).returncode == 0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"seal": None}, id="without a seal"),
        pytest.param({"seal": "0" * 32}, id="with another seal"),
        pytest.param({"qemu": "9.9.9"}, id="with other content"),
    ],
)
def test_a_record_of_a_user_is_ignored(sealing: Libvirt, change: Json) -> None:
    own = record(sealing.default(vm(rich())).object)
    answer = sealing.default(with_record(forged(own, **change)))
    assert record(answer.object) == own
    assert any("was ignored: this cluster did not write it" in warning for warning in answer.warnings)


def test_a_record_of_another_cluster_is_ignored(sealing: Libvirt, recording: Libvirt) -> None:
    foreign = record(recording.default(vm(rich())).object)
    assert record(sealing.default(with_record(foreign)).object) != foreign


def test_a_record_that_was_stored_before_the_cluster_had_a_secret_stays(sealing: Libvirt, recording: Libvirt) -> None:
    stored = recording.default(vm(rich())).object
    assert record(sealing.default(stored, oldObject=stored).object) == record(stored)


def test_a_document_type_fails_the_define(recording: Libvirt) -> None:
    text = record(recording.default(vm(rich())).object)
    done = run({"metadata": {"annotations": {HARDWARE_ANNOTATION: text}}}, '<!DOCTYPE x [<!ENTITY a "b">]>' + BARE)
    assert done.returncode == 1


def test_recording_does_not_change_the_spec(recording: Libvirt, libvirt: Libvirt) -> None:
    assert inner(recording.default(vm(rich())).object) == inner(libvirt.default(vm(rich())).object)


def test_the_manifest_contains_the_hook() -> None:
    command = [sys.executable, "-m", "poolhouse.cli.main", "hook", "-n", "vms", "-o", "json"]
    config = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert config["metadata"]["namespace"] == "vms"
    assert config["data"]["onDefineDomain"] == Path(hook.__file__).read_text()
    assert config["data"]["onDefineDomain"].startswith("#!")


def gates(*names: str) -> Json:
    configuration = {"developerConfiguration": {"featureGates": list(names)}}
    return {"spec": {"configuration": configuration}, "status": {"observedKubeVirtVersion": "v1.9.0"}}


def test_a_change_of_the_feature_gates_applies_to_equal_vms_at_once(libvirt: Libvirt) -> None:
    """With `POOLHOUSE_HARDWARE_RECORD=auto`. The defaulter remembers libvirt's choices for equal VMs."""

    def is_recorded(kubevirt: Json) -> bool:
        found = libvirt.default(vm(spec(disk("only-here"))), kubevirt=kubevirt).object
        return HARDWARE_ANNOTATION in (found["spec"]["template"].get("metadata") or {}).get("annotations", {})

    assert [is_recorded(gates(*names)) for names in ((), ("Sidecar",), (), ("Plugins",))] == [False, True, False, True]
