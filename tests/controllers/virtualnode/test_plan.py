"""What is written to the virtual Node."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controllers.virtualnode.plan import CreateNode, NodeFacts, NotOurs, PatchNode, plan
from poolhouse.api.apimachinery.merge_patch import apply_patch

NOW, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
FACTS = NodeFacts("poolhouse", "v1.34.4", "amd64")
RESOURCES = {"pods": "3", "poolhouse.dev/warm-vm": "3"}


def node(**changes: Any) -> dict[str, Any]:
    """The Node as the controllers have created it, and then a merge patch."""
    created = plan(None, FACTS, RESOURCES, NOW)
    assert isinstance(created, CreateNode)
    stored = apply_patch(created.document, {"metadata": {"uid": "n", "resourceVersion": "1"}})
    found: dict[str, Any] = apply_patch(stored, changes)
    return found


def after(document: dict[str, Any], resources: dict[str, str] = RESOURCES) -> dict[str, Any]:
    """The Node after all patches, each with the version that it is meant for."""
    for _ in range(3):
        step = plan(document, FACTS, resources, LATER)
        if step is None:
            return document
        assert isinstance(step, PatchNode)
        assert step.patch["metadata"]["resourceVersion"] == document["metadata"]["resourceVersion"]
        document = apply_patch(document, step.patch)
    raise AssertionError("the plan does not come to rest")


def condition(document: dict[str, Any], type: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in document["status"]["conditions"] if each["type"] == type)
    return found


def test_a_new_node_is_complete() -> None:
    created = node()
    assert created["spec"]["taints"] == [{"key": "poolhouse.dev/warm-vm", "effect": "NoSchedule"}]
    assert created["metadata"]["labels"]["type"] == "virtual-kubelet"
    assert not any("kubevirt.io" in label for label in created["metadata"]["labels"])
    assert created["status"]["capacity"] == created["status"]["allocatable"] == RESOURCES
    assert condition(created, "Ready")["status"] == "True"


def test_nothing_is_written_at_rest() -> None:
    assert plan(node(), FACTS, RESOURCES, LATER) is None


def test_another_spelling_of_a_quantity_is_no_change() -> None:
    stored = node(status={"capacity": {"pods": "1k", "memory": "8Ti"}, "allocatable": {"pods": "1k", "memory": "8Ti"}})
    resources = {"pods": "1000", "memory": "8192Gi", "poolhouse.dev/warm-vm": "3"}
    assert plan(stored, FACTS, resources, LATER) is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"metadata": {"labels": {"type": None}}}, id="a label that somebody has removed"),
        pytest.param({"metadata": {"labels": {"type": "other"}}}, id="a label that somebody has changed"),
        pytest.param({"spec": {"taints": None}}, id="a taint that somebody has removed"),
        pytest.param({"status": {"nodeInfo": {"kubeletVersion": "v1.33.0-poolhouse"}}}, id="an older version"),
        pytest.param({"status": {"capacity": {"pods": "9"}}}, id="a changed capacity"),
        pytest.param({"status": {"allocatable": {"example.com/gpu": "1"}}}, id="a resource that it does not offer"),
    ],
)
def test_what_others_change_is_restored(changes: dict[str, Any]) -> None:
    found = after(node(**changes))
    expected = node()
    for each in ("labels", "uid"):
        assert found["metadata"][each] == expected["metadata"][each]
    assert found["spec"] == expected["spec"]
    assert {**found["status"], "conditions": []} == {**expected["status"], "conditions": []}


def test_what_others_add_stays() -> None:
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    label = {"topology.kubernetes.io/zone": "z"}
    added = node(metadata={"labels": label}, spec={"taints": [taint], "unschedulable": True})
    found = after(added)
    assert taint in found["spec"]["taints"]
    assert len(found["spec"]["taints"]) == 2
    assert found["spec"]["unschedulable"]
    assert found["metadata"]["labels"].items() >= label.items()


def test_conditions_that_kubernetes_has_set_to_unknown_are_set_again() -> None:
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "x"}
    others = [each for each in node()["status"]["conditions"] if each["type"] != "Ready"]
    foreign = {"type": "KernelDeadlock", "status": "False", "reason": "x", "message": "x"}
    found = after(node(status={"conditions": [foreign, ready, *others]}))
    assert condition(found, "Ready")["status"] == "True"
    assert condition(found, "Ready")["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    assert condition(found, "MemoryPressure")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert condition(found, "KernelDeadlock") == foreign


def test_the_capacity_follows_the_pools() -> None:
    found = after(node(), {"pods": "1", "poolhouse.dev/warm-vm": "0"})
    assert found["status"]["capacity"] == found["status"]["allocatable"] == {"pods": "1", "poolhouse.dev/warm-vm": "0"}


def test_a_node_of_another_program_is_left_alone() -> None:
    found = plan(node(metadata={"labels": {"poolhouse.dev/virtual-node": None}}), FACTS, RESOURCES, NOW)
    assert isinstance(found, NotOurs)
    assert "poolhouse.dev/virtual-node" in found.message


def test_a_node_that_is_being_deleted_is_left_alone() -> None:
    assert plan(node(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), FACTS, {}, NOW) is None
