"""What a claim wants otherwise than its pool has it."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.claim.overrides import apply_overrides, forbidden, image, mismatch
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.claim import Overrides
from tests.controllers.claim.builders import a_claim

Json = dict[str, Any]

DISK = {"name": "root", "containerDisk": {"image": "fedora:41"}}
CONTAINER: Json = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "1Gi"}}, "volumes": [DISK]}}}}
TYPED: Json = {"spec": {"instancetype": {"name": "small", "kind": "VirtualMachineInstancetype", "revisionName": "r1"}}}
DRIVERS = {"name": "virtio", "containerDisk": {"image": "virtio-win:1"}}
ROOT = {"name": "root", "dataVolume": {"name": "root-disk"}}
SAYS = {"name": "init", "cloudInitNoCloud": {"userData": "#cloud-config"}}


def template(*volumes: Json, disks: tuple[Json, ...] = (), **made: Json) -> Json:
    """`made` are the dataVolumeTemplates, by name, '_' for '-'."""
    disks_of = {"devices": {"disks": list(disks)}} if disks else {}
    return {
        "spec": {
            "dataVolumeTemplates": [{"metadata": {"name": k.replace("_", "-")}, "spec": v} for k, v in made.items()],
            "template": {"spec": {"domain": disks_of, "volumes": list(volumes)}},
        }
    }


def disk(name: str, boot_order: int | None = None, kind: str = "disk") -> Json:
    return {"name": name, kind: {}, **({"bootOrder": boot_order} if boot_order is not None else {})}


REGISTRY = template(ROOT, root_disk={"source": {"registry": {"url": "docker://a"}}})
SOURCE = template(ROOT, root_disk={"sourceRef": {"kind": "DataSource", "name": "fedora"}})
BLANK = template(ROOT, root_disk={"source": {"blank": {}}})
WINDOWS = {"root_disk": {"source": {"pvc": {"name": "win11"}}}}
AMAZON: Json = {"instanceType": "mac1.metal", "imageID": "ami-1"}


def test_fields_take_precedence_over_annotations() -> None:
    annotations = {meta.INSTANCE_TYPE: "large", meta.IMAGE_ID: "debian"}
    assert a_claim(annotations=annotations).overrides == Overrides(instancetype="large", image="debian")
    fields = {"instancetype": "small", "placement": "east"}
    found = a_claim(annotations=annotations, overrides=fields).overrides
    assert found == Overrides(instancetype="small", image="debian", placement="east")


@pytest.mark.parametrize(
    ("want", "template", "says"),
    [
        pytest.param(Overrides(), CONTAINER, "", id="no overrides"),
        pytest.param(Overrides(image="fedora:41"), CONTAINER, "", id="the pool's image"),
        pytest.param(Overrides(image="fedora:42"), CONTAINER, "the pool's is fedora:41", id="another image"),
        pytest.param(
            Overrides(instancetype="small"), CONTAINER, "the pool's is none", id="a type for a template without"
        ),
        pytest.param(Overrides(instancetype="small"), TYPED, "", id="the pool's type"),
        pytest.param(Overrides(instancetype="large"), TYPED, "the pool's is small", id="another type"),
        pytest.param(
            Overrides(image="docker://b"), REGISTRY, "the pool's is docker://a", id="a DataVolume from a registry"
        ),
        pytest.param(Overrides(image="fedora"), SOURCE, "", id="a DataSource"),
        pytest.param(Overrides(instancetype="m5.large"), AMAZON, "the pool's is mac1.metal", id="an EC2 instance"),
        pytest.param(Overrides(placement="east"), CONTAINER, "", id="the placement is not compared"),
    ],
)
def test_mismatch(want: Overrides, template: Json, says: str) -> None:
    found = mismatch(want, template)
    assert says in found
    assert bool(found) == bool(says)
    assert not mismatch(want, apply_overrides(template, want)), "a VM that is created for the claim matches"


ALL = ("instancetype", "image", "placement")


@pytest.mark.parametrize(
    ("want", "allowed", "says"),
    [
        pytest.param(Overrides(instancetype="a"), None, "which are: none", id="none is allowed by default"),
        pytest.param(Overrides(image="b"), ("instancetype",), "overrides.image is not one of", id="another is allowed"),
        pytest.param(Overrides(instancetype="a", image="b", placement="east"), ALL, "", id="all are allowed"),
        pytest.param(Overrides(instancetype="a"), ("image",), "which are: image", id="not allowed"),
        pytest.param(Overrides(instancetype="a"), (), "which are: none", id="none is allowed"),
        pytest.param(Overrides(), (), "", id="no override"),
        pytest.param(
            Overrides(placement="west"), ALL, "not one of the pool's, which are: east", id="no such placement"
        ),
    ],
)
def test_forbidden_overrides(want: Overrides, allowed: tuple[str, ...] | None, says: str) -> None:
    found = forbidden(want, CONTAINER, allowed, {"east": {}})
    assert says in found
    assert bool(found) == bool(says)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            template(DRIVERS, ROOT, disks=(disk("root", 1), disk("virtio", None, "cdrom")), **WINDOWS),
            "win11",
            id="a CD-ROM with drivers is not the boot disk",
        ),
        pytest.param(
            template(DRIVERS, ROOT, disks=(disk("virtio", None, "cdrom"), disk("root")), **WINDOWS),
            "win11",
            id="a CD-ROM with drivers is not the boot disk without boot order",
        ),
        pytest.param(
            template(DRIVERS, ROOT, disks=(disk("virtio", 2), disk("root", 1)), **WINDOWS),
            "win11",
            id="the lowest boot order",
        ),
        pytest.param(
            template(DRIVERS, ROOT, disks=(disk("root"), disk("virtio", 1, "cdrom")), **WINDOWS),
            "virtio-win:1",
            id="a CD-ROM with boot order",
        ),
        pytest.param(template(DRIVERS, disks=(disk("virtio", None, "cdrom"),)), "virtio-win:1", id="a CD-ROM alone"),
        pytest.param(
            template(DISK, DRIVERS, disks=(disk("virtio"), disk("root"))), "virtio-win:1", id="the first disk"
        ),
        pytest.param(template(DISK, DRIVERS), "fedora:41", id="without disks: the first volume"),
        pytest.param(
            template(SAYS, DISK, disks=(disk("init"), disk("root"))),
            "fedora:41",
            id="a cloud-init volume is not bootable",
        ),
        pytest.param(
            template({**SAYS, "containerDisk": None}, DISK, disks=(disk("init"), disk("root"))),
            "fedora:41",
            id="a cloud-init volume with null beside it is not bootable",
        ),
        pytest.param(
            template(
                {"name": "root", "persistentVolumeClaim": {"claimName": "root-disk"}},
                disks=(disk("root"),),
                data={"source": {"http": {"url": "https://data"}}},
                root_disk={"source": {"http": {"url": "https://root"}}},
            ),
            "https://root",
            id="the DataVolume template of the boot disk",
        ),
        pytest.param(
            template({"name": "root", "ephemeral": {"persistentVolumeClaim": {"claimName": "root-disk"}}}, **WINDOWS),
            "win11",
            id="an ephemeral disk",
        ),
        pytest.param(
            template(ROOT, DISK, disks=(disk("root"),), data={"source": {"http": {"url": "https://data"}}}),
            "",
            id="an existing DataVolume has no known image",
        ),
    ],
)
def test_boot_image(found: Json, expected: str) -> None:
    assert image(found) == expected
    if expected:
        other = apply_overrides(found, Overrides(image="other"))
        assert image(other) == "other"
        assert str(other).count("'other'") == 1


def test_a_template_without_boot_image() -> None:
    assert "no boot image that can be replaced" in forbidden(Overrides(image="x"), BLANK, ALL, {})
    assert image(BLANK) == ""


def test_apply_overrides() -> None:
    made = apply_overrides(CONTAINER, Overrides(instancetype="large", image="fedora:42"))
    assert made["spec"]["instancetype"] == {"name": "large"}
    assert made["spec"]["template"]["spec"]["domain"] == {}, "KubeVirt refuses both"
    assert image(made) == "fedora:42"
    assert image(CONTAINER) == "fedora:41"
    typed = apply_overrides(TYPED, Overrides(instancetype="large"))
    assert typed["spec"]["instancetype"] == {"name": "large", "kind": "VirtualMachineInstancetype"}


@pytest.mark.parametrize(
    ("want", "template", "allowed", "says"),
    [
        pytest.param(Overrides(key_pair="k"), AMAZON, ("keyPair",), "", id="allowed"),
        pytest.param(Overrides(key_pair="k"), AMAZON, ("image",), "overrides.keyPair is not one of", id="not allowed"),
        pytest.param(Overrides(key_pair="k"), CONTAINER, ("keyPair",), "for pools of EC2 instances", id="a VM"),
    ],
)
def test_overrides_of_ec2(want: Overrides, template: Json, allowed: tuple[str, ...], says: str) -> None:
    found = forbidden(want, template, allowed, {})
    assert says in found
    assert bool(says) == bool(found)


def test_overrides_of_ec2_are_applied() -> None:
    want = Overrides(key_pair="k", security_groups=("sg-1",), iam_instance_profile="p")
    assert "keyPair k, the pool's is none" in mismatch(want, AMAZON)
    assert mismatch(want, apply_overrides(AMAZON, want)) == ""
    assert apply_overrides(AMAZON, want) == {
        **AMAZON,
        "keyPair": "k",
        "securityGroups": ["sg-1"],
        "iamInstanceProfile": "p",
    }
