"""The view of a warm VM, and which VMs a claim can get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.shared.vmi import parse_vmi
from controllers.warmpool.warm_vm import WarmVM, parse_node, seconds_since, why_unavailable
from controllers.warmpool.warm_vm import parse_warm_vm as view
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import CORDONED, NOT_READY_NODE, NOW, a_vm, a_vmi, ago

LABELS = {
    meta.WARM_STATE: "Ready",
    meta.WARM_POOL: "web",
    meta.POOL_UID: "p",
    meta.TEMPLATE_HASH: "v1.abc",
    meta.PLACEMENT: "east",
    meta.STANDBY: "Paused",
}


def document(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": "web-a", "uid": "u", "resourceVersion": "7", **metadata}}


def test_parse_warm_vm() -> None:
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "x"},
        {"apiVersion": "poolhouse.dev/v1alpha1", "kind": "VirtualMachineWarmPool", "name": "web", "uid": "p"}
        | {"controller": True},
    ]
    annotations = {meta.STATE_SINCE: "2026-11-21T12:00:00Z", meta.CHECK_FAILURES: "4", meta.ACTIVATED_AT: "x"}
    found = view(document(labels=LABELS, annotations=annotations, ownerReferences=owners))
    assert (found.state, found.pool, found.pool_uid, found.standby) == (WarmState.READY, "web", "p", "Paused")
    assert (found.template_hash, found.placement, found.resource_version) == ("v1.abc", "east", "7")
    assert (found.state_since, found.check_failures, found.activated) == ("2026-11-21T12:00:00Z", 4, True)
    assert found.owned_by("p")
    assert [each.kind for each in found.other_owners] == ["ConfigMap"]


@pytest.mark.parametrize(
    ("created", "reason", "refusal"),
    [
        pytest.param(False, "FailedCreate", "exceeded quota: vms", id="KubeVirt could not create the VMI"),
        pytest.param(True, "FailedCreate", "", id="it has created it since"),
        pytest.param(False, "FailedDelete", "", id="another failure"),
    ],
)
def test_why_a_vm_has_no_vmi(created: bool, reason: str, refusal: str) -> None:
    failure = {"type": "Failure", "status": "True", "reason": reason, "message": "exceeded quota: vms"}
    assert view({**document(), "status": {"created": created, "conditions": [failure]}}).start_refusal == refusal


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        pytest.param({meta.WARM_STATE: "Redy"}, {}, id="a word that is no state"),
        pytest.param({meta.WARM_STATE: "Ready", meta.STANDBY: "Asleep"}, {meta.CHECK_FAILURES: "many"}, id="nonsense"),
        pytest.param({}, {meta.CHECK_FAILURES: "9" * 5000}, id="a number of which Python makes none"),
        pytest.param(None, None, id="nothing"),
    ],
)
def test_invalid_labels_and_annotations_are_ignored(labels: Any, annotations: Any) -> None:
    found = view(document(labels=labels, annotations=annotations))
    assert found.state in (None, WarmState.READY)
    assert (found.standby, found.check_failures, found.owner.uid) == ("Running", 0, "")


@pytest.mark.parametrize("since", ["yesterday", "", "2026-11-21T12:00:00", "2026-13-41T12:00:00Z", "²"])
def test_an_invalid_state_time_falls_back_to_the_creation(since: str) -> None:
    found = view(document(annotations={meta.STATE_SINCE: since}, creationTimestamp=ago(60)))
    assert seconds_since(found.state_since, NOW) == 60


PAUSED = a_vm("a", standby="Paused")
STOPPED = a_vm("a", standby="Stopped")


@pytest.mark.parametrize(
    ("vm", "why"),
    [
        pytest.param(a_vm("a"), "", id="running and healthy"),
        pytest.param(PAUSED, "", id="paused"),
        pytest.param(STOPPED, "", id="stopped"),
        pytest.param(a_vm("a", WarmState.PROVISIONING), "PENDING_WARMPOOL_PROVISIONING", id="provisioning"),
        pytest.param(a_vm("a", WarmState.UNKNOWN), "Unknown", id="unknown"),
        pytest.param(a_vm("a", claim_uid="c"), "has a claim", id="claimed"),
        pytest.param(a_vm("a", deleting=True), "being deleted", id="being deleted"),
        pytest.param(a_vm("a", orphaned="PoolGone"), "orphaned", id="orphaned"),
        pytest.param(a_vm("a", vmi=None), "does not run", id="no VMI"),
        pytest.param(a_vm("a", vmi=a_vmi(deleted_at=ago(1))), "shutting down", id="shutting down"),
        pytest.param(a_vm("a", vmi=a_vmi(migrating=True)), "migrated", id="migrating"),
        pytest.param(a_vm("a", vmi=a_vmi(conditions=frozenset())), "not Ready", id="VMI not Ready"),
        pytest.param(a_vm("a", vmi=a_vmi(paused="PausedIOError")), "PausedIOError", id="paused by an error"),
        pytest.param(a_vm("a", node=CORDONED), "cordoned", id="node cordoned"),
        pytest.param(a_vm("a", node=NOT_READY_NODE), "is not ready", id="node not ready"),
        pytest.param(replace(PAUSED, vmi=a_vmi()), "not paused", id="should be paused and runs"),
        pytest.param(
            replace(PAUSED, vmi=a_vmi(paused="PausedIOError")), "PausedIOError", id="should be paused and has an error"
        ),
        pytest.param(replace(STOPPED, vmi=a_vmi()), "not stopped", id="should be stopped and runs"),
    ],
)
def test_why_unavailable(vm: WarmVM, why: str) -> None:
    assert (why in why_unavailable(vm)) if why else why_unavailable(vm) == ""


def test_parse_vmi() -> None:
    conditions = [
        {"type": "Ready", "status": "False"},
        {"type": "Paused", "status": "True", "reason": "PausedByUser"},
        {"type": "AgentConnected", "status": "True"},
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"},
    ]
    status = {"phase": "Running", "nodeName": "n", "conditions": conditions, "migrationState": {"completed": False}}
    status["interfaces"] = [{"name": "a"}, {"ipAddress": "10.0.0.7"}]
    found = parse_vmi({"metadata": {"name": "vm"}, "status": status})
    assert (found.paused, found.agent_connected, found.ready) == ("PausedByUser", True, False)
    assert (found.start_failure, found.message, found.node) == ("Unschedulable", "0/2 nodes", "n")
    assert (found.addresses, found.migrating) == (("10.0.0.7",), True)
    assert parse_vmi({"metadata": {"name": "vm"}}).phase == ""


@pytest.mark.parametrize(
    ("document", "ready", "leaving"),
    [
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, True, False, id="ready"),
        pytest.param(
            {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, False, False, id="not ready"
        ),
        pytest.param({"spec": {"unschedulable": True}}, True, True, id="cordoned"),
        pytest.param({"spec": {"taints": [{"key": "kubevirt.io/drain"}]}}, True, True, id="being drained"),
        pytest.param({"spec": {"taints": [{"key": "karpenter.sh/disrupted"}]}}, True, True, id="by Karpenter"),
        pytest.param({"spec": {"taints": [{"key": "node.kubernetes.io/memory-pressure"}]}}, True, False, id="tainted"),
    ],
)
def test_parse_node(document: dict[str, Any], ready: bool, leaving: bool) -> None:
    found = parse_node({"metadata": {"name": "n"}, **document})
    assert (found.ready, found.leaving) == (ready, leaving)
