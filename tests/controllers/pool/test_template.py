"""The VM of an ordinal, made from the pool's template."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controllers.pool.template import build_vm, disk_names
from tests.controllers.pool.builders import REVISION, a_pool, template

Json = dict[str, Any]


def made(ordinal: int = 2, *volumes: Json, names: Json | None = None, **spec: Any) -> Json:
    found = template(**spec)
    found["spec"]["template"]["spec"]["volumes"] += volumes
    return build_vm(a_pool(3, template=found, nameGeneration=names or {}), ordinal, REVISION)


def volumes_of(machine: Json) -> list[Json]:
    return list(machine["spec"]["template"]["spec"]["volumes"])


def test_a_vm_is_named_owned_and_labelled() -> None:
    metadata = made(7)["metadata"]
    assert metadata["name"] == "web-7"
    assert metadata["namespace"] == "default"
    assert metadata["labels"] == {"poolhouse.dev/pool": "web", "poolhouse.dev/revision": "r1"}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("VirtualMachinePool", "web", "u-web")
    assert owner["controller"] is True
    assert owner["blockOwnerDeletion"] is True


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
