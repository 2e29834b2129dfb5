"""Hashes of templates."""

from __future__ import annotations

import pytest

from controllers.warmpool.warm_pool import made_from, template_hash

SPEC = {"template": {"spec": {"domain": {"memory": {"guest": "1Gi"}}}}}
EAST = {"name": "east", "weight": 3, "nodeSelector": {"zone": "east"}}


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
def test_changes_of_the_hash(spec: dict[str, object], placement: dict[str, object], same: bool) -> None:
    assert made_from(template_hash(SPEC, EAST), spec, placement) is same


def test_the_hash_is_stable() -> None:
    """Another value would roll out every warm pool at the next upgrade: add an algorithm instead."""
    assert template_hash(SPEC, EAST) == "v1.7d9333990d51"


def test_vms_of_a_newer_release_count_as_current() -> None:
    assert made_from("v9.whatever", SPEC, EAST)


def test_a_vm_without_a_hash_is_outdated() -> None:
    assert not made_from("", SPEC, EAST)
