"""What a claim wants otherwise than its pool has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controllers.warm.claim.overrides import Wanted, applied, image, mismatch, refused, wanted
from kinds import meta

Json = dict[str, Any]

DISK = {"name": "root", "containerDisk": {"image": "fedora:41"}}
CONTAINER: Json = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "1Gi"}}, "volumes": [DISK]}}}}
TYPED: Json = {"spec": {"instancetype": {"name": "small", "kind": "VirtualMachineInstancetype", "revisionName": "r1"}}}
REGISTRY: Json = {"spec": {"dataVolumeTemplates": [{"spec": {"source": {"registry": {"url": "docker://a"}}}}]}}
SOURCE: Json = {"spec": {"dataVolumeTemplates": [{"spec": {"sourceRef": {"kind": "DataSource", "name": "fedora"}}}]}}
BLANK: Json = {"spec": {"dataVolumeTemplates": [{"spec": {"source": {"blank": {}}}}]}}
AMAZON: Json = {"instanceType": "mac1.metal", "imageID": "ami-1"}


def test_fields_win_over_the_documents_annotations() -> None:
    annotations = {meta.INSTANCE_TYPE: "large", meta.IMAGE_ID: "debian"}
    assert wanted(None, annotations) == Wanted("large", "debian")
    fields = SimpleNamespace(instancetype="small", image=None, placement="east")
    assert wanted(fields, annotations) == Wanted("small", "debian", "east")


@pytest.mark.parametrize(
    ("want", "template", "says"),
    [
        pytest.param(Wanted(), CONTAINER, "", id="nothing is wanted"),
        pytest.param(Wanted(image="fedora:41"), CONTAINER, "", id="what the pool has"),
        pytest.param(Wanted(image="fedora:42"), CONTAINER, "the pool's is fedora:41", id="another image"),
        pytest.param(Wanted(instancetype="small"), CONTAINER, "the pool's is none", id="a type where there is none"),
        pytest.param(Wanted(instancetype="small"), TYPED, "", id="the pool's type"),
        pytest.param(Wanted(instancetype="large"), TYPED, "the pool's is small", id="another type"),
        pytest.param(Wanted(image="docker://b"), REGISTRY, "the pool's is docker://a", id="a disk from a registry"),
        pytest.param(Wanted(image="fedora"), SOURCE, "", id="a DataSource by its name"),
        pytest.param(Wanted("m5.large"), AMAZON, "the pool's is mac1.metal", id="an instance of EC2"),
        pytest.param(Wanted(placement="east"), CONTAINER, "", id="a placement is each machine's own"),
    ],
)
def test_a_warm_machine_that_does_not_do(want: Wanted, template: Json, says: str) -> None:
    found = mismatch(want, template)
    assert says in found
    assert bool(found) == bool(says)
    assert not mismatch(want, applied(template, want)), "what is made for it does"


@pytest.mark.parametrize(
    ("want", "allowed", "says"),
    [
        pytest.param(Wanted("a", "b", "east"), None, "", id="no pool forbids it by default"),
        pytest.param(Wanted("a"), ("image",), "which are: image", id="not among those allowed"),
        pytest.param(Wanted("a"), (), "which are: none", id="none is allowed"),
        pytest.param(Wanted(), (), "", id="who wants nothing needs no leave"),
        pytest.param(Wanted(placement="west"), None, "none of the pool's, which are: east", id="no such placement"),
    ],
)
def test_what_is_refused(want: Wanted, allowed: tuple[str, ...] | None, says: str) -> None:
    found = refused(want, CONTAINER, allowed, {"east": {}})
    assert says in found
    assert bool(found) == bool(says)


def test_an_image_that_cannot_be_exchanged_is_refused() -> None:
    assert "no image that could be exchanged" in refused(Wanted(image="x"), BLANK, None, {})
    assert image(BLANK) == ""


def test_a_type_takes_the_place_of_sizes_and_the_template_stays_as_it_is() -> None:
    made = applied(CONTAINER, Wanted("large", "fedora:42"))
    assert made["spec"]["instancetype"] == {"name": "large"}
    assert made["spec"]["template"]["spec"]["domain"] == {}, "KubeVirt refuses both"
    assert image(made) == "fedora:42"
    assert image(CONTAINER) == "fedora:41"
    typed = applied(TYPED, Wanted("large"))
    assert typed["spec"]["instancetype"] == {"name": "large", "kind": "VirtualMachineInstancetype"}
