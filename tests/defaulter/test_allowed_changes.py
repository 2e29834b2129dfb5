"""Changes that a response of the defaulter may make, and changes that it may not make."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from defaulter.allowed_changes import forbidden_changes
from tests.webhook.builders import disk, vm

ROOT = disk("root", bus="virtio")
ASKED = vm(
    ROOT,
    {"name": "data", "disk": {}, "cache": "none"},
    annotations={"owner": "jane"},
    machine={"type": "q35"},
    cpu={"cores": 2, "sockets": 0},
    resources={"requests": {"memory": "1Gi"}},
)
DOMAIN = ("spec", "template", "spec", "domain")
DEVICES = (*DOMAIN, "devices")


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    answer: Any = copy.deepcopy(ASKED)
    place = answer
    for key in path[:-1]:
        place = place[key] if isinstance(key, int) else place.setdefault(key, {})
    if isinstance(place, list) and path[-1] == len(place):
        place.append(to)
    else:
        place[path[-1]] = to
    return answer


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ASKED, id="nothing"),
        pytest.param(changed(*DOMAIN, "firmware", "uuid", to="u"), id="a field whose parent was absent"),
        pytest.param(changed(*DEVICES, "disks", 1, "disk", "bus", to="sata"), id="the empty bus of a disk"),
        pytest.param(changed(*DEVICES, "disks", 0, "disk", "pciAddress", to="0000:07:00.0"), id="an address"),
        pytest.param(changed(*DEVICES, "disks", 2, to=disk("cloudinit", bus="sata")), id="a disk for a bare volume"),
        pytest.param(changed(*DOMAIN, "machine", "type", to="pc-q35-7.2"), id="an alias made canonical"),
        pytest.param(changed(*DOMAIN, "cpu", "sockets", to=1), id="a count that was 0, which is unset"),
        pytest.param(changed("metadata", "annotations", "poolhouse.dev/note", to="x"), id="an annotation of Poolhouse"),
        pytest.param(
            changed("spec", "template", "metadata", "annotations", "poolhouse.dev/hardware", to="{}"),
            id="an annotation of Poolhouse on the template, which had none",
        ),
        pytest.param(changed("spec", "template", "spec", "architecture", to="amd64"), id="the architecture"),
        pytest.param(
            changed("spec", "template", "spec", "networks", to=[{"name": "default", "pod": {}}]), id="the first network"
        ),
        pytest.param(changed(*DEVICES, "interfaces", to=[{"name": "default", "bridge": {}}]), id="the first interface"),
    ],
)
def test_a_change_is_allowed(answer: dict[str, Any]) -> None:
    assert forbidden_changes(ASKED, answer) == []


RECORD = ("spec", "template", "metadata", "annotations", "poolhouse.dev/hardware")
RECORDED = changed(*RECORD, to="of the disks so far")


def test_the_hardware_record_may_be_replaced() -> None:
    assert forbidden_changes(RECORDED, changed(*RECORD, to="of the new disk too")) == []


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        pytest.param(ASKED, "spec.template.metadata", id="a removed record"),
        pytest.param(changed(*RECORD, to=""), "poolhouse.dev/hardware", id="an empty record"),
        pytest.param(changed(*RECORD, to={"v": "1"}), "poolhouse.dev/hardware", id="a record that is not text"),
    ],
)
def test_the_hardware_record_may_not_be_removed(answer: dict[str, Any], path: str) -> None:
    assert any(path in beyond for beyond in forbidden_changes(RECORDED, answer))


def test_no_other_annotation_of_poolhouse_may_be_replaced() -> None:
    asked = changed("spec", "template", "metadata", "annotations", "poolhouse.dev/note", to="x")
    answer = changed("spec", "template", "metadata", "annotations", "poolhouse.dev/note", to="y")
    assert len(forbidden_changes(asked, answer)) == 1


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        pytest.param(changed(*DEVICES, "disks", 0, "disk", "bus", to="sata"), "disk.bus", id="an explicit bus"),
        pytest.param(changed(*DEVICES, "disks", 0, "name", to="other"), "disks[*].name", id="the name of a disk"),
        pytest.param(
            changed(*DEVICES, "disks", to=[disk("data"), ROOT]),
            "disks[*]",
            id="the order of disks",
        ),
        pytest.param(changed(*DEVICES, "disks", to=[ROOT]), "disks", id="a removed disk"),
        pytest.param(changed(*DEVICES, "disks", 0, "io", to="native"), "disks[*].io", id="a host's field"),
        pytest.param(changed(*DEVICES, "disks", 1, "cache", to="writeback"), "disks[*].cache", id="an explicit cache"),
        pytest.param(changed(*DOMAIN, "machine", "type", to="pc-i440fx-7.2"), "machine.type", id="another machine"),
        pytest.param(changed(*DOMAIN, "cpu", "cores", to=4), "cpu.cores", id="an explicit count"),
        pytest.param(changed(*DOMAIN, "resources", "limits", to={"cpu": 1}), "resources.limits.cpu", id="resources"),
        pytest.param(changed(*DEVICES, "hostDevices", to=[{"name": "gpu"}]), "hostDevices", id="a device of the host"),
        pytest.param(changed("spec", "template", "spec", "volumes", to=[{}]), "spec.volumes", id="volumes"),
        pytest.param(changed("spec", "running", to=False), "spec.running", id="whether it runs"),
        pytest.param(changed("spec", "dataVolumeTemplates", to=[]), "spec.dataVolumeTemplates", id="a new field"),
        pytest.param(changed("metadata", "name", to="other"), "metadata.name", id="its name"),
        pytest.param(changed("metadata", "annotations", "owner", to="eve"), "annotations.owner", id="an annotation"),
        pytest.param(changed("metadata", "annotations", "new", to="x"), "annotations.new", id="a foreign annotation"),
        pytest.param(changed("metadata", "labels", "poolhouse.dev/pool", to="x"), "metadata.labels", id="a label"),
        pytest.param(changed("metadata", "ownerReferences", to=[{}]), "metadata.ownerReferences", id="an owner"),
        pytest.param({}, "apiVersion", id="an empty document"),
    ],
)
@pytest.mark.sentence("4.33")
def test_an_answer_of_the_defaulter_may_not_change_other_fields(answer: dict[str, Any], path: str) -> None:
    found = forbidden_changes(ASKED, answer)
    assert any(path in beyond for beyond in found), found


def test_the_domain_of_a_vmi_is_one_level_up() -> None:
    asked = {"kind": "VirtualMachineInstance", "spec": {"domain": {"devices": {"interfaces": [{"name": "default"}]}}}}
    answer = copy.deepcopy(asked)
    answer["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] = "52:54:00:00:00:01"
    assert forbidden_changes(asked, answer) == []
    assert forbidden_changes(asked, {**answer, "metadata": {"name": "x"}}) == ["metadata.name"]
