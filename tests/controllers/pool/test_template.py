"""The VM of an ordinal, made from the pool's template."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest

from controllers.pool.template import build_vm
from controllers.pool.template_merge import merge_template
from controllers.shared.vm import disk_names
from poolhouse.api.kubevirt.fields import VM_SPEC
from poolhouse.api.kubevirt.meaning import mean_the_same
from tests.controllers.pool.builders import REVISION, a_pool, template
from tests.kubevirt.spellings import respell

Json = dict[str, Any]


def made(ordinal: int = 2, *volumes: Json, names: Json | None = None, **spec: Any) -> Json:
    found = template(**spec)
    found["spec"]["template"]["spec"]["volumes"] += volumes
    return build_vm(a_pool(3, template=found, nameGeneration=names or {}), ordinal, REVISION)


def volumes_of(machine: Json) -> list[Json]:
    return list(machine["spec"]["template"]["spec"]["volumes"])


@pytest.mark.sentence("1.4", "1.31")
def test_a_vm_is_named_owned_and_labelled() -> None:
    metadata = made(7)["metadata"]
    assert metadata["name"] == "web-7"
    assert metadata["namespace"] == "default"
    assert metadata["labels"] == {"poolhouse.dev/pool": "web", "poolhouse.dev/revision": "r1"}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("VirtualMachinePool", "web", "u-web")
    assert owner["controller"] is True
    assert owner["blockOwnerDeletion"] is True


@pytest.mark.sentence("1.35", "1.36")
def test_labels_and_annotations_are_inherited_by_vm_and_vmi_and_ours_win() -> None:
    given = template()
    given["metadata"] = {"labels": {"a": "1", "poolhouse.dev/pool": "other"}, "annotations": {"b": "2"}, "name": "x"}
    given["spec"]["template"]["metadata"] = {"labels": {"c": "3"}, "annotations": {"d": "4"}}
    machine = build_vm(a_pool(3, template=given), 1, REVISION)
    assert machine["metadata"]["labels"] == {"a": "1", "poolhouse.dev/pool": "web", "poolhouse.dev/revision": "r1"}
    assert machine["metadata"]["annotations"] == {"b": "2"}
    assert machine["metadata"]["name"] == "web-1"
    inner = machine["spec"]["template"]["metadata"]
    assert inner["labels"] == {"c": "3", "poolhouse.dev/pool": "web", "poolhouse.dev/revision": "r1"}
    assert inner["annotations"] == {"d": "4"}


def test_the_template_is_not_modified() -> None:
    pool = a_pool(3, nameGeneration={"appendPostfixToSecretReferences": True})
    before = copy.deepcopy(pool.spec.template)
    build_vm(pool, 1, REVISION)
    assert pool.spec.template == before


@pytest.mark.sentence("1.37")
def test_each_vm_has_disks_of_its_own() -> None:
    machine = made(12)
    assert machine["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] == "root-12"
    assert volumes_of(machine)[0] == {"name": "root", "dataVolume": {"name": "root-12"}}
    assert disk_names(template()) == ("root",)


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param({"dataVolume": {"name": "shared"}}, {"dataVolume": {"name": "shared"}}, id="shared DataVolume"),
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "root"}},
            {"persistentVolumeClaim": {"claimName": "root-2"}},
            id="the claim of a DataVolume of the template",
        ),
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "iso", "readOnly": True}},
            {"persistentVolumeClaim": {"claimName": "iso", "readOnly": True}},
            id="a claim that everybody shares",
        ),
        pytest.param(
            {"ephemeral": {"persistentVolumeClaim": {"claimName": "root"}}},
            {"ephemeral": {"persistentVolumeClaim": {"claimName": "root-2"}}},
            id="a layer upon a DataVolume of the template",
        ),
        pytest.param(
            {"ephemeral": {"persistentVolumeClaim": {"claimName": "golden"}}},
            {"ephemeral": {"persistentVolumeClaim": {"claimName": "golden"}}},
            id="a layer upon what everybody shares",
        ),
    ],
)
@pytest.mark.sentence("1.37")
def test_a_volume_follows_its_disk(volume: Json, expected: Json) -> None:
    assert volumes_of(made(2, {"name": "v", **volume}))[1] == {"name": "v", **expected}


SECRETS: list[tuple[str, Json, Json]] = [
    ("secret", {"secret": {"secretName": "s"}}, {"secret": {"secretName": "s-2"}}),
    ("sysprep", {"sysprep": {"secret": {"name": "s"}}}, {"sysprep": {"secret": {"name": "s-2"}}}),
    (
        "cloud-init user data",
        {"cloudInitNoCloud": {"secretRef": {"name": "s"}}},
        {"cloudInitNoCloud": {"secretRef": {"name": "s-2"}}},
    ),
    (
        "cloud-init network data",
        {"cloudInitNoCloud": {"networkDataSecretRef": {"name": "n"}, "userData": "x"}},
        {"cloudInitNoCloud": {"networkDataSecretRef": {"name": "n-2"}, "userData": "x"}},
    ),
    (
        "config drive",
        {"cloudInitConfigDrive": {"secretRef": {"name": "s"}, "metaDataSecretRef": {"name": "m"}}},
        {"cloudInitConfigDrive": {"secretRef": {"name": "s-2"}, "metaDataSecretRef": {"name": "m-2"}}},
    ),
]
CONFIG_MAPS: list[tuple[str, Json, Json]] = [
    ("config map", {"configMap": {"name": "c"}}, {"configMap": {"name": "c-2"}}),
    ("sysprep", {"sysprep": {"configMap": {"name": "c"}}}, {"sysprep": {"configMap": {"name": "c-2"}}}),
]


@pytest.mark.parametrize(("volume", "expected"), [pytest.param(a, b, id=i) for i, a, b in SECRETS])
@pytest.mark.sentence("1.38", "1.39")
def test_secrets_get_the_postfix_when_asked(volume: Json, expected: Json) -> None:
    asked = {"appendPostfixToSecretReferences": True}
    assert volumes_of(made(2, {"name": "v", **volume}, names=asked))[1] == {"name": "v", **expected}
    only_others = {"appendPostfixToConfigMapReferences": True}
    assert volumes_of(made(2, {"name": "v", **volume}, names=only_others))[1] == {"name": "v", **volume}
    assert volumes_of(made(2, {"name": "v", **volume}))[1] == {"name": "v", **volume}


def test_image_pull_secrets_get_no_postfix() -> None:
    volume = {"name": "v", "containerDisk": {"image": "golden", "imagePullSecret": "registry"}}
    assert volumes_of(made(2, volume, names={"appendPostfixToSecretReferences": True}))[1] == volume


@pytest.mark.parametrize(("volume", "expected"), [pytest.param(a, b, id=i) for i, a, b in CONFIG_MAPS])
@pytest.mark.sentence("1.38", "1.40")
def test_config_maps_get_the_postfix_when_asked(volume: Json, expected: Json) -> None:
    asked = {"appendPostfixToConfigMapReferences": True}
    assert volumes_of(made(2, {"name": "v", **volume}, names=asked))[1] == {"name": "v", **expected}
    only_others = {"appendPostfixToSecretReferences": True}
    assert volumes_of(made(2, {"name": "v", **volume}, names=only_others))[1] == {"name": "v", **volume}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"spec": {"running": True, "template": {"spec": {"domain": {"devices": {}}}}}}, id="no disks"),
        pytest.param({"metadata": None, "spec": {"template": {"metadata": None, "spec": {}}}}, id="nulls"),
        pytest.param({"spec": {"dataVolumeTemplates": None, "template": {"spec": {"volumes": None}}}}, id="null lists"),
    ],
)
def test_absent_parts_of_the_template(given: Json) -> None:
    assert build_vm(a_pool(1, template=given), 1, REVISION)["metadata"]["name"] == "web-1"


def vm(domain: Json | None = None, metadata: Json | None = None, **spec: Any) -> Json:
    inner = {"domain": {"devices": {}, **(domain or {})}}
    return {"metadata": {"name": "web-1", **(metadata or {})}, "spec": {"template": {"spec": inner}, **spec}}


def devices(**kinds: list[Json]) -> Json:
    return {"devices": kinds}


DECIDED = {"machine": {"type": "pc-q35-7.2"}, "firmware": {"uuid": "u", "serial": "s"}}
NIC = {"name": "default", "masquerade": {}}
MAC = {**NIC, "macAddress": "02:00:00:00:00:01", "model": "virtio", "pciAddress": "0000:01:00.0"}


@pytest.mark.parametrize(
    ("live", "base", "new", "expected"),
    [
        pytest.param(
            vm({"cpu": {"cores": 1, "model": "host-model"}, **DECIDED}),
            vm({"cpu": {"cores": 1}}),
            vm({"cpu": {"cores": 2}}),
            vm({"cpu": {"cores": 2, "model": "host-model"}, **DECIDED}),
            id="what the author changed is changed, what was decided for the VM stays",
        ),
        pytest.param(
            vm({"machine": {"type": "pc-q35-7.2"}}),
            vm({"machine": {"type": "q35"}}),
            vm({"machine": {"type": "q35"}, "memory": {"vmi": "2Gi"}}),
            vm({"machine": {"type": "pc-q35-7.2"}, "memory": {"vmi": "2Gi"}}),
            id="a machine type that was made exact stays exact",
        ),
        pytest.param(
            vm(DECIDED),
            vm(),
            vm({"firmware": {"uuid": "mine"}}),
            vm({**DECIDED, "firmware": {"uuid": "mine", "serial": "s"}}),
            id="an exact machine type follows a template that names another",
        ),
        pytest.param(
            vm({"firmware": {"bootloader": {"efi": {}}, "uuid": "u"}}),
            vm({"firmware": {"bootloader": {"efi": {}}}}),
            vm(),
            vm({"firmware": {"uuid": "u"}}),
            id="what the author took away goes, what others put beside it stays",
        ),
        pytest.param(
            vm(devices(interfaces=[MAC])),
            vm(devices(interfaces=[NIC])),
            vm(devices(interfaces=[{"name": "new", "bridge": {}}, NIC])),
            vm(devices(interfaces=[{"name": "new", "bridge": {}}, MAC])),
            id="a new interface leaves the others' addresses alone",
        ),
        pytest.param(
            vm(devices(interfaces=[MAC])),
            vm(devices(interfaces=[NIC])),
            vm(devices(interfaces=[{**NIC, "model": "e1000e"}])),
            vm(devices(interfaces=[{**NIC, "macAddress": MAC["macAddress"], "model": "e1000e"}])),
            id="another model: the PCI address goes, the MAC stays",
        ),
        pytest.param(
            vm(devices(interfaces=[MAC, {"name": "users", "bridge": {}}])),
            vm(devices(interfaces=[NIC, {"name": "gone", "bridge": {}}])),
            vm(devices(interfaces=[NIC])),
            vm(devices(interfaces=[MAC, {"name": "users", "bridge": {}}])),
            id="a device that a user added stays",
        ),
        pytest.param(
            vm(devices(interfaces=[MAC, {"name": "gone", "bridge": {}}])),
            vm(devices(interfaces=[NIC, {"name": "gone", "bridge": {}}])),
            vm(devices(interfaces=[NIC])),
            vm(devices(interfaces=[MAC])),
            id="a device that the author took away goes",
        ),
        pytest.param(
            vm(devices(disks=[{"name": "root", "disk": {"bus": "virtio", "pciAddress": "0000:02:00.0"}}])),
            vm(devices(disks=[{"name": "root", "disk": {"bus": "virtio"}}])),
            vm(devices(disks=[{"name": "root", "disk": {"bus": "sata"}}])),
            vm(devices(disks=[{"name": "root", "disk": {"bus": "sata"}}])),
            id="another bus: the address goes",
        ),
        pytest.param(
            vm(devices(disks=[{"name": "iso", "disk": {"bus": "virtio", "pciAddress": "0000:02:00.0"}}])),
            vm(devices(disks=[{"name": "iso", "disk": {"bus": "virtio"}}])),
            vm(devices(disks=[{"name": "iso", "cdrom": {"bus": "sata"}}])),
            vm(devices(disks=[{"name": "iso", "cdrom": {"bus": "sata"}}])),
            id="a disk that becomes a CD-ROM is a disk no longer",
        ),
        pytest.param(
            vm(running=False), vm(running=True), vm({"cpu": {"cores": 2}}, running=True),
            vm({"cpu": {"cores": 2}}, running=False),
            id="a VM that somebody stopped stays stopped",
        ),
        pytest.param(
            vm(runStrategy="Always"),
            vm(running=False),
            vm(running=True),
            vm(running=True),
            id="running and runStrategy are never both there",
        ),
        pytest.param(
            vm(metadata={"labels": {"a": "1", "users": "x"}, "annotations": {"users": "y"}}),
            vm(metadata={"labels": {"a": "1"}}),
            vm(metadata={"labels": {"b": "2"}}),
            vm(metadata={"labels": {"users": "x", "b": "2"}, "annotations": {"users": "y"}}),
            id="labels and annotations of others stay",
        ),
        pytest.param(
            vm({"cpu": {"cores": 1}, **DECIDED}, metadata={"labels": {"a": "1"}}),
            None,
            vm({"cpu": {"cores": 2}}, metadata={"labels": {"b": "2"}}),
            vm({"cpu": {"cores": 2}, **DECIDED}, metadata={"labels": {"a": "1", "b": "2"}}),
            id="where the old template is lost, nothing is taken away",
        ),
        pytest.param(
            vm(dataVolumeTemplates=[{"metadata": {"name": "root-1"}, "spec": {"size": 1}}]),
            vm(dataVolumeTemplates=[{"metadata": {"name": "root-1"}, "spec": {"size": 1}}]),
            vm(
                dataVolumeTemplates=[
                    {"metadata": {"name": "data-1"}, "spec": {}},
                    {"metadata": {"name": "root-1"}, "spec": {"size": 1}},
                ]
            ),
            vm(
                dataVolumeTemplates=[
                    {"metadata": {"name": "data-1"}, "spec": {}},
                    {"metadata": {"name": "root-1"}, "spec": {"size": 1}},
                ]
            ),
            id="a further disk comes beside those there are",
        ),
        pytest.param(
            vm(devices(interfaces=[MAC | {"state": "absent"}])),
            vm(devices(interfaces=[])),
            vm(devices(interfaces=[NIC])),
            vm(devices(interfaces=[MAC])),
            id="a NIC returns before KubeVirt has taken it out of the VM",
        ),
        pytest.param(
            vm(devices(interfaces=[MAC | {"state": "absent"}])),
            vm(devices(interfaces=[NIC])),
            vm({"x": 1, **devices(interfaces=[NIC])}),
            vm({"x": 1, **devices(interfaces=[MAC | {"state": "absent"}])}),
            id="a NIC that a user takes out of the VM",
        ),
        pytest.param(
            vm(instancetype={"name": "small", "kind": "K", "revisionName": "of-small"}),
            vm(instancetype={"name": "small", "kind": "K"}),
            vm(instancetype={"name": "large", "kind": "K"}),
            vm(instancetype={"name": "large", "kind": "K"}),
            id="another instance type: the saved revision of the former goes",
        ),
        pytest.param(
            vm(preference={"name": "linux", "revisionName": "of-linux"}),
            vm(preference={"name": "linux"}),
            vm({"x": 1}, preference={"name": "linux"}),
            vm({"x": 1}, preference={"name": "linux", "revisionName": "of-linux"}),
            id="the same preference keeps its saved revision",
        ),
        pytest.param(
            vm(instancetype={"name": "small", "revisionName": "of-small"}),
            vm(instancetype={"name": "small"}),
            vm(instancetype={"name": "large", "revisionName": "of-large"}),
            vm(instancetype={"name": "large", "revisionName": "of-large"}),
            id="the template may name the revision",
        ),
        pytest.param(
            vm({"x": ["a", "b", "mine"]}), vm({"x": ["a"]}), vm({"x": ["c"]}), vm({"x": ["c"]}),
            id="a list without names is taken as a whole",
        ),
        pytest.param(
            vm({"x": ["a", "mine"]}), vm({"x": ["a"]}), vm({"x": ["a"], "y": 1}), vm({"x": ["a", "mine"], "y": 1}),
            id="a list without names is left alone as a whole",
        ),
    ],
)  # fmt: skip
def test_an_update(live: Json, base: Json | None, new: Json, expected: Json) -> None:
    before = copy.deepcopy((live, base, new))
    assert merge_template(live, base, new) == expected
    assert (live, base, new) == before, "nothing that was given is changed"


def test_an_equal_template_changes_nothing() -> None:
    live = vm({**DECIDED, **devices(interfaces=[MAC])}, metadata={"labels": {"users": "x"}})
    assert merge_template(live, vm(), vm()) == live


def test_a_second_merge_changes_nothing() -> None:
    live, base = vm({"cpu": {"cores": 1}, **DECIDED}), vm({"cpu": {"cores": 1}})
    new = vm({"cpu": {"cores": 2}, "memory": {"vmi": "1Gi"}})
    once = merge_template(live, base, new)
    assert merge_template(once, new, new) == once
    assert merge_template(once, base, new) == once


@pytest.mark.parametrize("seed", range(60))
def test_an_update_to_another_spelling_gives_the_same_vm(seed: int) -> None:
    random = Random(seed)
    one = {
        "cpu": {"cores": 1},
        "memory": {"guest": "1Gi"},
        "devices": {
            "disks": [
                {"name": "root", "disk": {"bus": "virtio"}},
                {"name": "iso", "cdrom": {"bus": "sata"}},
                {"name": "data", "lun": {"bus": "scsi"}},
            ],
            "interfaces": [{"name": "default", "masquerade": {}, "model": "virtio"}],
        },
    }
    other = {**one, "cpu": {"cores": 2}}
    base, new = (
        {"metadata": {}, "spec": respell({**vm(domain)["spec"], "runStrategy": "Always"}, VM_SPEC, random)}
        for domain in (one, other)
    )
    live = {"metadata": {}, "spec": respell(base["spec"], VM_SPEC, random)}
    expected = {**vm(other)["spec"], "runStrategy": "Always"}
    assert mean_the_same(merge_template(live, base, new)["spec"], expected, VM_SPEC)
    assert mean_the_same(merge_template(live, live, base)["spec"], live["spec"], VM_SPEC)


@pytest.mark.parametrize("target", ["disk", "cdrom", "lun"])
@pytest.mark.parametrize("absent", [{}, {"disk": None, "cdrom": None, "lun": None}], ids=["absent", "null"])
def test_another_type_of_a_disk_removes_the_former_one(target: str, absent: Json) -> None:
    former = "cdrom" if target != "cdrom" else "disk"

    def disk(name: str, **more: Any) -> Json:
        return vm(devices(disks=[{**absent, "name": "root", name: {"bus": "sata", **more}}]))

    merged = merge_template(disk(former, pciAddress="0000:00:05.0"), disk(former), disk(target))
    (found,) = merged["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
    assert {key: value for key, value in found.items() if value is not None} == {
        "name": "root",
        target: {"bus": "sata"},
    }
