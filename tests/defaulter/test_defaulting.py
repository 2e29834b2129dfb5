"""The defaults of VMs, with a real libvirt."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from defaulter.contract import forbidden_changes, undefaulted_fields
from tests.defaulter.builders import addresses, disk, inner, nic, pool, spec, vm, vmi
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt

ALIAS = "q35"


@pytest.mark.sentence("4.16")
def test_addresses_are_those_of_virt_launcher_and_not_of_a_first_define(libvirt: Libvirt) -> None:
    answer = libvirt.default(vm(spec(disk("root"), disk("data"), nic())))
    assert addresses(answer.object) == {"default": "0000:01:00.0", "root": "0000:07:00.0", "data": "0000:08:00.0"}


@pytest.mark.sentence("4.2", "4.22")
def test_every_unset_field_is_filled_and_defaulting_is_idempotent(libvirt: Libvirt) -> None:
    document = vm(spec(disk(), {"name": "cd", "cdrom": {}}, nic(), nic("second")))
    once = libvirt.default(document).object
    assert undefaulted_fields(once) == []
    assert forbidden_changes(document, once) == []
    assert libvirt.default(once).object == once


@pytest.mark.sentence("4.7")
def test_unknown_fields_status_and_metadata_do_not_change(libvirt: Libvirt) -> None:
    document = vm(spec(disk(), nic(future={"x": [1, None]}), domain={"devices": {"teleporter": {}}, "mood": "blue"}))
    document |= {"status": {"ready": True}, "aFieldOfTheFuture": {"a": 1}}
    document["metadata"] |= {"labels": {"a": "b"}, "annotations": {"<x>": "&"}}
    answer = libvirt.default(document).object
    assert answer["aFieldOfTheFuture"] == {"a": 1}
    assert (answer["status"], answer["metadata"]) == (document["status"], document["metadata"])
    devices = inner(answer)["domain"]["devices"]
    assert devices["teleporter"] == {}
    assert devices["interfaces"][0]["future"] == {"x": [1, None]}


def _given(before: Any, after: Any, path: str = "") -> None:
    """Asserts that everything in `before` stands in `after`, where an alias of a machine may have been resolved."""
    if isinstance(before, dict):
        for key, value in before.items():
            if value not in (None, "") and not path.endswith("machine"):
                _given(value, after[key], f"{path}.{key}")
    elif isinstance(before, list):
        for index, value in enumerate(before):
            _given(value, after[index], f"{path}[{index}]")
    else:
        assert before == after, path


@pytest.mark.sentence("4.4")
def test_a_value_that_is_set_never_changes(libvirt: Libvirt) -> None:
    content = spec(
        disk("root", pciAddress="0000:0a:00.0", serial="WD-1_a.b", bootOrder=1),
        disk("usb", bus="usb"),
        nic("default", macAddress="52-54-00-AA-BB-CC", pciAddress="0000:03:00.0", model="e1000e"),
        domain={"cpu": {"cores": 2, "model": "Haswell"}, "firmware": {"uuid": "E4686D2C-6E8D-4335-B8FD-81BEE22F4814"}},
    )
    answer = libvirt.default(vm(content)).object
    _given(vm(content), answer)
    assert "sockets" not in inner(answer)["domain"]["cpu"]


def test_an_alias_is_resolved_with_a_warning(libvirt: Libvirt) -> None:
    answer = libvirt.default(vm(spec(disk(), domain={"machine": {"type": ALIAS}})))
    machine = inner(answer.object)["domain"]["machine"]["type"]
    assert machine.startswith("pc-q35-")
    assert [w for w in answer.warnings if ALIAS in w and machine in w]


def test_the_alias_that_kubevirt_wrote_needs_no_warning(libvirt: Libvirt) -> None:
    document = vm(spec(disk(), domain={"machine": {"type": ALIAS}}))
    for configuration, warned in (({}, False), ({"machineType": "virt"}, True)):
        kubevirt = {"spec": {"configuration": configuration}, "status": {"observedKubeVirtVersion": "v1.8.4"}}
        answer = libvirt.default(document, kubevirt=kubevirt)
        assert any("is an alias" in warning for warning in answer.warnings) == warned
        assert inner(answer.object)["domain"]["machine"]["type"].startswith("pc-q35-")


def test_a_default_machine_type_needs_no_warning(libvirt: Libvirt) -> None:
    assert libvirt.default(vm(spec(disk()))).warnings == []


@pytest.mark.sentence("4.35")
def test_devices_are_matched_by_name_not_by_order(libvirt: Libvirt) -> None:
    before = libvirt.default(vm(spec(disk("a"), disk("b"), disk("c"), nic("x"), nic("y")))).object
    shuffled = deepcopy(before)
    devices = inner(shuffled)["domain"]["devices"]
    devices["disks"].reverse()
    devices["interfaces"].reverse()
    assert addresses(libvirt.default(shuffled).object) == addresses(before)


def test_a_pool_template_gets_addresses_but_no_identity(libvirt: Libvirt) -> None:
    answer = inner(libvirt.default(pool(spec(disk(), nic()))).object)["domain"]
    assert answer["devices"]["disks"][0]["disk"]["pciAddress"] == "0000:07:00.0"
    assert answer["machine"]["type"].startswith("pc-q35-")
    assert "macAddress" not in answer["devices"]["interfaces"][0]
    assert "firmware" not in answer


@pytest.mark.sentence("4.17")
def test_identity_depends_on_seed_namespace_and_name(libvirt: Libvirt) -> None:
    def identity(**envelope: Any) -> tuple[str, str]:
        document = envelope.pop("document", None) or vm(spec(nic()))
        domain = inner(libvirt.default(document, **envelope).object)["domain"]
        return domain["firmware"]["uuid"], domain["devices"]["interfaces"][0]["macAddress"]

    assert identity() == identity()
    ways = [identity(), identity(seed="other"), identity(document=vm(spec(nic()), name="b"))]
    ways.append(identity(document=vm(spec(nic()), namespace="other")))
    assert len(set(ways)) == len(ways)
    assert identity() == identity(document=vmi(spec(nic()))), (
        "a VM that was missed gets at its start what it would have had"
    )


def test_the_namespace_of_the_request_applies_to_an_object_without_one(libvirt: Libvirt) -> None:
    document = vm(spec(nic()))
    del document["metadata"]["namespace"]
    assert libvirt.default(document, namespace="ns").object["spec"] == libvirt.default(vm(spec(nic()))).object["spec"]


def test_vms_without_names_never_share_an_identity(libvirt: Libvirt) -> None:
    document = vm(spec(nic()))
    document["metadata"] = {"generateName": "a-", "namespace": "ns"}
    found = [libvirt.default(document).object for _ in range(3)]
    assert len({inner(answer)["domain"]["firmware"]["uuid"] for answer in found}) == 3
    assert len({inner(answer)["domain"]["devices"]["interfaces"][0]["macAddress"] for answer in found}) == 3
    assert libvirt.default(document, seed="request-1").object == libvirt.default(document, seed="request-1").object


def test_a_vm_with_an_instance_type_gets_no_cpu_and_no_memory(libvirt: Libvirt) -> None:
    content = spec(disk(), nic())
    del content["domain"]["memory"]
    domain = inner(libvirt.default(vm(content, instancetype={"name": "small"})).object)["domain"]
    assert "cpu" not in domain
    assert "memory" not in domain
    assert domain["devices"]["disks"][0]["disk"]["pciAddress"]


def test_the_slot_count_annotation_is_respected(libvirt: Libvirt) -> None:
    document = vm(spec(disk(), nic()), annotations={"kubevirt.io/pci-interface-slot-count": "8"})
    assert addresses(libvirt.default(document).object)["root"] == "0000:0b:00.0"


@pytest.mark.sentence("4.25")
def test_referenced_objects_need_not_exist(libvirt: Libvirt) -> None:
    content = spec(disk("claim"), disk("secret"), {"name": "lun", "lun": {"bus": "scsi"}}, nic("multus"))
    content["volumes"] = [
        {"name": "claim", "persistentVolumeClaim": {"claimName": "nowhere"}},
        {"name": "secret", "secret": {"secretName": "nowhere"}},
        {"name": "lun", "persistentVolumeClaim": {"claimName": "nowhere"}},
    ]
    content["networks"] = [{"name": "multus", "multus": {"networkName": "nowhere/nothing"}}]
    answer = inner(libvirt.default(vm(content)).object)
    assert (answer["volumes"], answer["networks"]) == (content["volumes"], content["networks"])


HOST_SIDE = {"cache": "none", "io": "native", "errorPolicy": "report", "dedicatedIOThread": True, "tag": "x"}


@pytest.mark.sentence("4.3", "4.27")
def test_fields_of_the_host_are_neither_changed_nor_filled(libvirt: Libvirt) -> None:
    content = spec(
        disk("plain"),
        disk("tuned", **HOST_SIDE),
        domain={"ioThreadsPolicy": "auto", "resources": {"requests": {"memory": "1Gi"}}},
    )
    answer = inner(libvirt.default(vm(content)).object)["domain"]
    plain, tuned = answer["devices"]["disks"]
    assert set(plain) == {"name", "disk"}
    assert {key: tuned[key] for key in HOST_SIDE} == HOST_SIDE
    assert answer["resources"] == {"requests": {"memory": "1Gi"}}
    assert not {"emulator", "name", "uuid", "source"} & set(answer)


def test_an_unknown_cpu_feature_is_a_warning(libvirt: Libvirt) -> None:
    """A define takes any; as QEMU spells it, libvirt takes none."""
    names = ("sse4.1", "sse4_1", "vmx", "nonsense")
    features = [{"name": name, "policy": "require"} for name in names]
    document = vm(spec(disk(), domain={"cpu": {"features": features}}))
    answer = libvirt.default(document)
    found = [warning.partition(": libvirt ") for warning in answer.warnings]
    place = "spec.template.spec.domain.cpu.features"
    assert [path for path, _, _ in found] == [f"{place}[1]", f"{place}[3]"]
    assert found[0][2].endswith("does not know the CPU feature 'sse4_1'")
    assert forbidden_changes(document, answer.object) == []
    assert libvirt.default(answer.object, oldObject=answer.object).warnings == [], "once is enough"


def test_vms_keep_the_addresses_of_their_template(libvirt: Libvirt) -> None:
    template = libvirt.default(pool(spec(disk("root"), disk("data"), nic()))).object
    machine = libvirt.default(vm(inner(template))).object
    assert addresses(machine) == addresses(template)
    assert inner(machine)["domain"]["firmware"]["uuid"]


def test_libvirt_keeps_no_domain(libvirt: Libvirt) -> None:
    for _ in range(3):
        libvirt.default(vm(spec(disk(), nic())))
        libvirt.default(vm(spec(disk(), domain={"machine": {"type": "pc-q35-99.0"}})))
        libvirt.default(vm(spec(disk(pciAddress="0000:05:01.0"))))
    roots = list(libvirt.once.root.rglob("defaulting*.xml"))
    assert roots == []


def test_devices_that_kubevirt_adds_are_allowed_changes(libvirt: Libvirt) -> None:
    document = vm({"domain": {"devices": {}, "memory": {"guest": "64Mi"}}, "volumes": [{"name": "v"}]})
    assert forbidden_changes(document, libvirt.default(document).object) == []


def test_a_binding_that_is_null_counts_as_absent(libvirt: Libvirt) -> None:
    found = inner(libvirt.default(vm(spec(nic(sriov=None)))).object)["domain"]["devices"]["interfaces"][0]
    without = inner(libvirt.default(vm(spec(nic()))).object)["domain"]["devices"]["interfaces"][0]
    assert {key: value for key, value in found.items() if value is not None} == without
    assert without["pciAddress"] == "0000:01:00.0"
