"""Which pools are node groups, and what a request of the autoscaler changes in a pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.pools import parse_removals
from controllers.shared.vm import VM
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.node_groups import Limits, read_limits
from poolhouse.nodegroups.groups import (
    Change,
    Groups,
    NodeGroup,
    Refused,
    decrease,
    delete,
    foreign,
    increase,
    obstacle,
    vm_name,
)
from tests.controllers.pool.builders import a_pool, leaving, vm

MIN, MAX = meta.NODE_GROUP_MIN_SIZE, meta.NODE_GROUP_MAX_SIZE
NUMBER = "must be a number from 1 to 999999"


def group(replicas: int, *vms: VM, least: int = 1, most: int = 5, removals: tuple[str, ...] = ()) -> NodeGroup:
    pool = replace(a_pool(replicas), removals=frozenset(f"u-{name}" for name in removals))
    return NodeGroup(pool, Limits(least, most), vms)


THREE = (vm(1), vm(2), vm(3))


@pytest.mark.parametrize(
    ("provider_id", "node", "expected"),
    [
        ("kubevirt://web-3", "worker-3", "web-3"),
        ("kubevirt://web-3", "", "web-3"),
        ("", "web-3", "web-3"),
        ("kubevirt://", "web-3", ""),
        ("aws:///eu-1a/i-0123", "web-3", ""),
    ],
)
def test_the_vm_of_a_node(provider_id: str, node: str, expected: str) -> None:
    assert vm_name(provider_id, node) == expected


@pytest.mark.parametrize(
    ("annotations", "max_replicas", "expected"),
    [
        pytest.param({}, None, None, id="without annotations"),
        pytest.param({MIN: "1", MAX: "5"}, None, Limits(1, 5), id="both"),
        pytest.param({MIN: "0", MAX: "5"}, None, f"the annotation {MIN} {NUMBER}, not '0'", id="zero"),
        pytest.param(
            {MIN: "1", MAX: "1" * 30}, None, f"the annotation {MAX} {NUMBER}, not '11111111111111111111'", id="endless"
        ),
        pytest.param({MIN: "1", MAX: "5"}, 3, Limits(1, 3), id="the pool's own maximum is lower"),
        pytest.param({MIN: "1", MAX: "5"}, 9, Limits(1, 5), id="the pool's own maximum is higher"),
        pytest.param({MIN: "1"}, None, f"the annotation {MAX} is missing", id="no maximum"),
        pytest.param({MAX: "1"}, None, f"the annotation {MIN} is missing", id="no minimum"),
        pytest.param(
            {MIN: "one", MAX: "5"},
            None,
            f"the annotation {MIN} {NUMBER}, not 'one'",
            id="word",
        ),
        pytest.param(
            {MIN: "1", MAX: "-1"},
            None,
            f"the annotation {MAX} {NUMBER}, not '-1'",
            id="negative",
        ),
        pytest.param(
            {MIN: "٣", MAX: "5"},
            None,
            f"the annotation {MIN} {NUMBER}, not '٣'",
            id="no ASCII",
        ),
        pytest.param(
            {MIN: "6", MAX: "5"}, None, f"the annotation {MIN} is 6, which is more than the maximum of 5", id="crossed"
        ),
    ],
)
def test_limits(annotations: dict[str, str], max_replicas: int | None, expected: object) -> None:
    assert read_limits(annotations, max_replicas) == expected


@pytest.mark.parametrize(
    ("given", "scaled_by", "expected"),
    [
        ({}, {}, ""),
        ({}, {"db": "by-jobs"}, ""),
        ({"paused": True}, {}, "the pool is paused"),
        ({"deleting": True}, {}, "the pool is being deleted"),
        ({}, {"web": "by-jobs"}, "HorizontalPodAutoscaler by-jobs also sets its replicas"),
    ],
)
def test_pools_that_the_autoscaler_must_leave_alone(
    given: dict[str, Any], scaled_by: dict[str, str], expected: str
) -> None:
    assert obstacle(a_pool(3, **given), scaled_by) == expected


@pytest.mark.parametrize(
    ("before", "delta", "expected"),
    [
        pytest.param(group(3, *THREE), 2, Change(5), id="up to the maximum"),
        pytest.param(
            group(3, *THREE), 3, "FAILED_PRECONDITION: 6 nodes would be more than the maximum of 5", id="beyond it"
        ),
        pytest.param(
            group(3, *THREE), 0, "INVALID_ARGUMENT: the size can only be increased by 1 or more, not by 0", id="nothing"
        ),
        pytest.param(
            group(3, *THREE), -1, "INVALID_ARGUMENT: the size can only be increased by 1 or more, not by -1", id="less"
        ),
    ],
)
def test_increase(before: NodeGroup, delta: int, expected: Change | str) -> None:
    assert answer(increase, before, delta) == expected


@pytest.mark.parametrize(
    ("before", "delta", "expected"),
    [
        pytest.param(group(5, *THREE), -2, Change(3), id="VMs that do not exist yet"),
        pytest.param(
            group(5, *THREE), -3, "FAILED_PRECONDITION: the target size cannot be 2: 3 VMs exist", id="a VM that exists"
        ),
        pytest.param(
            group(5, *THREE, leaving(4)), -2, Change(3), id="a VM that is being deleted is none of the pool's replicas"
        ),
        pytest.param(
            group(5, *THREE, removals=("web-1",)), -3, Change(2), id="a VM that is to be deleted is none either"
        ),
        pytest.param(
            group(5, *THREE),
            1,
            "INVALID_ARGUMENT: the target size can only be decreased by a negative number, not by 1",
            id="more",
        ),
    ],
)
def test_decrease(before: NodeGroup, delta: int, expected: Change | str) -> None:
    assert answer(decrease, before, delta) == expected


@pytest.mark.parametrize(
    ("before", "names", "expected"),
    [
        pytest.param(group(3, *THREE), ["web-2"], Change(2, {"web-2": "u-web-2"}), id="one"),
        pytest.param(
            group(3, *THREE), ["web-2", "web-3"], Change(1, {"web-2": "u-web-2", "web-3": "u-web-3"}), id="several"
        ),
        pytest.param(group(3, *THREE), ["web-2", "web-2"], Change(2, {"web-2": "u-web-2"}), id="one, named twice"),
        pytest.param(group(2, *THREE, removals=("web-2",)), ["web-2"], None, id="the same call again"),
        pytest.param(
            group(2, *THREE, removals=("web-2",)),
            ["web-2", "web-3"],
            Change(1, {"web-2": "u-web-2", "web-3": "u-web-3"}),
            id="a call again, with one more",
        ),
        pytest.param(group(2, vm(1), leaving(2), vm(3)), ["web-2"], None, id="a VM that is being deleted"),
        pytest.param(group(2, vm(1), vm(3)), ["web-2"], None, id="a VM that is gone"),
        pytest.param(
            group(2, vm(1), vm(3), removals=("web-2",)),
            ["web-3"],
            Change(1, {"web-3": "u-web-3"}),
            id="a VM that is gone is forgotten",
        ),
        pytest.param(
            group(1, vm(1)), ["web-1"], "FAILED_PRECONDITION: 0 nodes would be less than the minimum of 1", id="below"
        ),
        pytest.param(
            group(3, *THREE, least=2),
            ["web-1", "web-2"],
            "FAILED_PRECONDITION: 1 node would be less than the minimum of 2",
            id="all of a call or none",
        ),
        pytest.param(
            group(3, vm(1, scale_in="Protect"), vm(2), vm(3)),
            ["web-1", "web-2"],
            "FAILED_PRECONDITION: VM web-1 is protected by poolhouse.dev/scale-in",
            id="a protected VM",
        ),
    ],
)
def test_delete(before: NodeGroup, names: list[str], expected: Change | str | None) -> None:
    assert answer(delete, before, names) == expected


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ({"web-2": "u-web"}, ""),
        ({}, ""),
        ({"web-2": "u-other"}, "VM web-2 is not one of pool web"),
        ({"web-2": ""}, "VM web-2 is not one of pool web"),
    ],
    ids=["its own", "gone", "another pool's", "detached"],
)
def test_vms_of_others(owners: dict[str, str], expected: str) -> None:
    assert foreign(group(3, *THREE), ["web-2"], owners) == expected


def test_the_group_of_a_vm() -> None:
    groups = Groups({"web": group(3, *THREE)})
    assert groups.of_vm("web-2") is groups.by_name["web"]
    assert groups.of_vm("web-4") is None


def test_a_change_is_one_patch_of_what_was_read() -> None:
    patch = Change(2, {"web-2": "u-2", "web-10": "u-10"}).patch("7")
    assert patch["spec"] == {"replicas": 2}
    assert patch["metadata"]["resourceVersion"] == "7"
    annotation = patch["metadata"]["annotations"]["poolhouse.dev/remove-vms"]
    assert parse_removals(annotation) == {"web-2": "u-2", "web-10": "u-10"}
    assert Change(4).patch("7") == {"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 4}}


def answer(decide: Any, *arguments: Any) -> Any:
    try:
        return decide(*arguments)
    except Refused as refused:
        return f"{refused.code}: {refused.message}"
