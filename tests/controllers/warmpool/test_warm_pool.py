"""Hashes of templates."""

from __future__ import annotations

from dataclasses import replace
from time import process_time
from typing import Any

import pytest

from controllers.claim.overrides import apply_overrides
from controllers.warmpool.warm_pool import WarmPool
from poolhouse.api.kinds.claim import Overrides
from tests.controllers.warmpool.builders import a_pool, a_vm

SPEC = {"template": {"spec": {"domain": {"memory": {"guest": "1Gi"}}}}}
EAST = {"name": "east", "weight": 3, "nodeSelector": {"zone": "east"}}


def pool_of(spec: dict[str, Any], placement: dict[str, Any] = EAST) -> WarmPool:
    return a_pool(template={"spec": spec}, placements=[placement] if placement else [])


def is_made_from(label: str, pool: WarmPool) -> bool:
    return pool.is_current(label, next(iter(pool.placements)))


@pytest.mark.parametrize(
    ("spec", "placement", "same"),
    [
        pytest.param(SPEC, EAST, True, id="the same"),
        pytest.param({"template": SPEC["template"]}, {**EAST, "weight": 9}, True, id="another weight"),
        pytest.param(SPEC, {**EAST, "name": "e"}, True, id="another name for the same place"),
        pytest.param(SPEC, {**EAST, "networks": []}, True, id="an empty list is nothing"),
        pytest.param({**SPEC, "instancetype": {"name": "u1"}}, EAST, False, id="another spec"),
        pytest.param(SPEC, {**EAST, "nodeSelector": {"zone": "west"}}, False, id="another place"),
        pytest.param(SPEC, {}, False, id="no place"),
    ],
)
def test_changes_of_the_hash(spec: dict[str, Any], placement: dict[str, Any], same: bool) -> None:
    assert is_made_from(pool_of(SPEC).hashes["east"], pool_of(spec, placement)) is same


def test_the_hash_is_stable() -> None:
    """Another value would roll out every warm pool at the next upgrade: add an algorithm instead."""
    assert pool_of(SPEC).hashes == {"east": "v3.9ee6bd9b904d"}
    assert is_made_from("v2.9ee6bd9b904d", pool_of(SPEC)), "the hash of VMs of earlier releases"
    assert is_made_from("v1.7d9333990d51", pool_of(SPEC)), "the hash of VMs of earlier releases"


def test_the_namespace_of_the_pool_does_not_count() -> None:
    debian = {"name": "debian"}
    named, plain, other = (
        pool_of({"dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"sourceRef": {**debian, **found}}}]})
        for found in ({"namespace": "ns"}, {}, {"namespace": "elsewhere"})
    )
    assert is_made_from(named.hashes["east"], plain)
    assert not is_made_from(named.hashes["east"], other)
    assert is_made_from("v2.c70fd039e9c2", named), "an upgrade replaces no VM"


def test_another_spelling_of_the_template_keeps_vms_with_an_agent() -> None:
    """The agent is hashed beside the template, whose quantities and defaults keep their meaning."""
    agent, respelt = {"port": 8200}, {"template": {"spec": {"domain": {"memory": {"guest": "1024Mi"}}}}}
    vm = a_vm("web-1", of=a_pool(template={"spec": SPEC}, agent=agent))
    assert a_pool(template={"spec": respelt}, agent=agent).current(vm)
    assert not a_pool(template={"spec": respelt}, agent={"port": 8201}).current(vm)
    assert not a_pool(template={"spec": respelt}).current(vm), "the VM has an agent that the pool no longer has"


def test_vms_of_a_newer_release_count_as_current() -> None:
    assert is_made_from("v9.whatever", pool_of(SPEC))


def test_a_vm_without_a_hash_is_outdated() -> None:
    assert not is_made_from("", pool_of(SPEC))


def image_of(name: str) -> dict[str, Any]:
    return {"disk": "root", "dataSource": "ns/debian", "kind": "pvc", "namespace": "images", "name": name}


def tracking(*images: str, tracks: bool = True) -> WarmPool:
    """A pool with a disk from the DataSource `debian`, which points at the image."""
    disk = {"metadata": {"name": "root"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "debian"}}}
    volumes = [{"name": "root", "dataVolume": {"name": "root"}}]
    spec = {"dataVolumeTemplates": [disk], "template": {"spec": {"domain": {}, "volumes": volumes}}}
    status = {"dataSources": [image_of(each) for each in images]}
    return a_pool(template={"spec": spec}, updateStrategy={"trackDataSources": tracks}, status=status)


def source_of(template: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = template["spec"]["dataVolumeTemplates"][0]["spec"]
    return spec


def test_a_new_image_of_a_data_source_is_a_new_template() -> None:
    old, new = tracking("debian-1"), tracking("debian-2")
    m = a_vm("web-1", of=old)
    assert old.current(m)
    assert not new.current(m)
    assert tracking("debian-1").current(m), "the image of before"
    assert tracking("debian-1", tracks=False).template_hash == tracking("debian-2", tracks=False).template_hash


def test_the_image_of_another_data_source_is_not_kept() -> None:
    image = {**image_of("fedora-1"), "dataSource": "ns/fedora"}
    pool = tracking()
    pool = replace(pool, status=pool.status.model_validate({"dataSources": [image]}))
    assert not pool.images


def test_a_vm_gets_the_image_and_a_claim_may_choose_another_data_source() -> None:
    pool = tracking("debian-1")
    assert pool.tracked == {"root": ("ns", "debian")}
    pinned = {"source": {"pvc": {"namespace": "images", "name": "debian-1"}}}
    assert source_of(pool.pinned(pool.template)) == pinned
    assert "sourceRef" in source_of(pool.template), "the pool's template stays as it is"
    other = apply_overrides(pool.template, Overrides(image="fedora"))
    assert source_of(pool.pinned(other)) == {"sourceRef": {"kind": "DataSource", "name": "fedora"}}
    unread = tracking()
    assert unread.pinned(unread.template) == unread.template, "KubeVirt then resolves the DataSource"


def test_a_large_template_is_read_once_for_all_placements_and_vms() -> None:
    def seconds(placements: int, vms: int) -> float:
        volumes = [{"name": f"v{n}", "cloudInitNoCloud": {"userData": "x" * 50}} for n in range(250)]
        given = [{"name": f"p{n}"} for n in range(placements)]
        template = {"spec": {"template": {"spec": {"domain": {}, "volumes": volumes}}}}
        pool = a_pool(placements=given, template=template)
        old = [a_vm(f"web-{n}", template_hash="v3.0123456789ab", placement="p0") for n in range(vms)]
        begun = process_time()
        assert len(pool.hashes) == placements
        assert not any(map(pool.current, old))
        return process_time() - begun

    seconds(1, 1)
    assert seconds(64, 500) < 10 * min(seconds(1, 1) for _ in range(3))
