"""A node that is lost is named: in the conditions of the pool, and in its log with the end of the outage."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.cluster import SCHEDULABLE
from controllers.pool.outages import describe_lost_nodes, lost_node, open_outages, outage_decisions
from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.stores import Stores
from controllers.shared.decisions import decision
from controllers.shared.sources import Node, parse_node
from controllers.shared.vm import VM
from poolhouse.api.kinds.decisions import Decision
from poolhouse.api.kinds.pool import PoolStatus
from tests.controllers.pool.builders import NOW, REVISION, a_pool, halted, snapshot, vm, vmi
from tests.controllers.pool.stores import observe_pool, put, stored

TIME, EARLIER = "2026-03-01T12:00:00Z", "2026-03-01T11:50:00Z"
LOST = {"node-1": False, "node-2": True}
WELL = {"node-1": True, "node-2": True}


def on(node: str, ordinal: int, *, ready: bool = True, **given: Any) -> VM:
    run = vmi(f"web-{ordinal}", revision=REVISION.label, node=node, phase="Running", ready=ready)
    return vm(ordinal, ready=ready, vmi=run, **given)


def down(ordinal: int, **given: Any) -> VM:
    return on("node-1", ordinal, ready=False, printable_status="Running", **given)


def pool_of(*vms: VM, nodes: Any = LOST, of: Any = None) -> PoolSnapshot:
    return snapshot(of if of is not None else len(vms), *vms, nodes=nodes)


def status_of(observed: PoolSnapshot) -> PoolStatus:
    return pool_status(observed, plan(observed, NOW), NOW)


def ready(observed: PoolSnapshot) -> tuple[str, str, str]:
    """State, reason and message that `kubectl get` and `overview` show."""
    found = {each.type: each for each in status_of(observed).conditions}
    state = next((name for name in ("Stalled", "Reconciling") if name in found), "Ready" if "Ready" in found else "")
    return state, found["Ready"].reason, found["Ready"].message


HALF = (down(1), down(2), on("node-2", 3), on("node-2", 4))


@pytest.mark.parametrize(
    ("observed", "described"),
    [
        pytest.param(pool_of(*HALF), "node node-1 is not ready (2 VMs)", id="a node is lost"),
        pytest.param(pool_of(*HALF, nodes=WELL), "", id="VMs are down on a node that is ready"),
        pytest.param(pool_of(*HALF, nodes={}), "", id="nothing is known of nodes"),
        pytest.param(pool_of(on("node-1", 1), on("node-2", 2)), "", id="VMs of a lost node that are still ready"),
        pytest.param(pool_of(halted(1), on("node-2", 2)), "", id="a halted VM waits for no node"),
        pytest.param(pool_of(vm(1, vmi_exists=False, ready=False), vm(2)), "", id="a VM without VMI is on no node"),
        pytest.param(
            pool_of(down(1), on("node-2", 2, ready=False), nodes={"node-1": False, "node-2": False}),
            "node node-1 is not ready (1 VM), node node-2 is not ready (1 VM)",
            id="two nodes are lost",
        ),
    ],
)
def test_unavailable_vms_are_grouped_by_their_lost_node(observed: PoolSnapshot, described: str) -> None:
    assert describe_lost_nodes(observed) == described


def test_the_node_of_each_vm_is_known() -> None:
    observed = pool_of(*HALF)
    assert [lost_node(observed, each) for each in observed.vms] == ["node-1", "node-1", "", ""]


@pytest.mark.parametrize(
    ("observed", "shown"),
    [
        pytest.param(
            pool_of(*HALF),
            (
                "Stalled",
                "NodeNotReady",
                "2 VMs are unavailable, maxUnavailable is 1; node node-1 is not ready (2 VMs)",
            ),
            id="more VMs than maxUnavailable",
        ),
        pytest.param(
            pool_of(down(1), *(on("node-2", n) for n in range(2, 9))),
            ("Reconciling", "NodeNotReady", "1 of 8 VMs is unavailable; node node-1 is not ready (1 VM)"),
            id="no more than maxUnavailable",
        ),
        pytest.param(
            pool_of(down(1), down(2), on("node-2", 3, ready=False), on("node-2", 4, ready=False)),
            ("Reconciling", "NodeNotReady", "4 of 4 VMs are unavailable; node node-1 is not ready (2 VMs)"),
            id="other VMs alone are too many",
        ),
        pytest.param(
            pool_of(*HALF, of=a_pool(4, paused=True)),
            (
                "Stalled",
                "NodeNotReady",
                "2 VMs are unavailable, maxUnavailable is 1; node node-1 is not ready (2 VMs)",
            ),
            id="a paused pool says so too",
        ),
        pytest.param(
            pool_of(*HALF, nodes=WELL), ("Reconciling", "ScalingVMs", "2 of 4 VMs are available"), id="no outage"
        ),
    ],
)
def test_the_column_status_shows_the_worst_truth(observed: PoolSnapshot, shown: tuple[str, str, str]) -> None:
    assert ready(observed) == shown


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [pytest.param(LOST, "NodeNotReady", id="a node"), pytest.param(WELL, "MinimumReplicasUnavailable", id="others")],
)
def test_an_update_that_pauses_does_not_hide_that_half_of_the_vms_are_down(nodes: Any, reason: str) -> None:
    pool = a_pool(4, updateStrategy={"proactive": {"steps": [{"setWeight": 50}, {"pause": {}}]}})
    vms = (down(1), down(2), on("node-2", 3, revision="web-r0"), on("node-2", 4, revision="web-r0"))
    paused = snapshot(pool, *vms, nodes=nodes)
    conditions = {each.type: each for each in status_of(paused).conditions}
    assert conditions["Progressing"].reason == "UpdatePaused"
    assert conditions["Ready"].reason == reason
    assert conditions["Ready"].message.startswith("2 VMs are unavailable, maxUnavailable is 1")


OUTAGE = decision(EARLIER, "NodeNotReady", "node node-1 is not ready: 2 VMs are on it", "web-1/u-web-1", node="node-1")
RETURN = decision(
    TIME, "NodeReady", f"node node-1 is ready again, after an outage since {EARLIER}", "web-1/u-web-1", node="node-1"
)
OTHER = decision(EARLIER, "SuccessfulCreate", "node node-1 is not ready: a text of another decision", "web-1")


@pytest.mark.parametrize(
    ("observed", "known", "logged"),
    [
        pytest.param(
            pool_of(*HALF),
            (),
            [
                decision(
                    TIME,
                    "NodeNotReady",
                    "node node-1 is not ready: 2 VMs are on it",
                    "web-1/u-web-1",
                    "web-2/u-web-2",
                    node="node-1",
                )
            ],
            id="an outage begins",
        ),
        pytest.param(pool_of(*HALF), (OUTAGE,), [], id="it is in the log"),
        pytest.param(
            pool_of(down(1), on("node-1", 2), on("node-2", 3)),
            (OTHER,),
            [
                decision(
                    TIME,
                    "NodeNotReady",
                    "node node-1 is not ready: 2 VMs are on it",
                    "web-1/u-web-1",
                    "web-2/u-web-2",
                    node="node-1",
                )
            ],
            id="the other VMs of the node follow",
        ),
        pytest.param(pool_of(*HALF, nodes=WELL), (OUTAGE,), [RETURN], id="the node is back, its VMs are not yet"),
        pytest.param(pool_of(on("node-2", 1), nodes=WELL), (OUTAGE,), [RETURN], id="its VMs run elsewhere"),
        pytest.param(pool_of(on("node-2", 1), nodes=WELL), (RETURN, OUTAGE), [], id="the end is in the log"),
        pytest.param(pool_of(on("node-2", 1)), (OUTAGE,), [], id="the node is still away"),
        pytest.param(pool_of(on("node-2", 1), nodes={}), (OUTAGE,), [], id="nothing is known of the node"),
    ],
)
def test_the_log_has_each_outage_and_its_end_once(
    observed: PoolSnapshot, known: tuple[Decision, ...], logged: list[Decision]
) -> None:
    assert list(outage_decisions(observed, known, NOW)) == logged


def test_a_second_outage_is_another_one() -> None:
    again = replace_time(OUTAGE, "2026-03-01T12:00:01Z")
    assert open_outages((OUTAGE, RETURN)) == {}
    assert open_outages((OUTAGE, RETURN, again)) == {"node-1": again}


def replace_time(of: Decision, time: str) -> Decision:
    return of.model_copy(update={"time": time})


@pytest.mark.parametrize(
    ("nodes", "logged", "found"),
    [
        pytest.param([Node("node-1", {}, ready=False)], (), {"node-1": False}, id="not ready"),
        pytest.param([Node("node-1", {})], (), {"node-1": True}, id="ready"),
        pytest.param([Node("node-2", {})], (), {"node-1": False}, id="a node that was deleted"),
        pytest.param([], (), {}, id="a user who may not see nodes"),
        pytest.param([], (OUTAGE,), {"node-1": False}, id="a user who may not see nodes, but the outage in the log"),
        pytest.param([Node("node-1", {})], (OUTAGE,), {"node-1": True}, id="the node of an outage"),
    ],
)
def test_the_readiness_of_nodes_is_observed(nodes: list[Node], logged: Any, found: dict[str, bool]) -> None:
    stores = Stores()
    pool = a_pool(1, status={"decisions": [each.json() for each in logged]})
    for each in nodes:
        stores.cluster.nodes.put(("", each.name), each)
    assert observe_pool(put(stores, pool, on("node-1", 1)), pool).nodes == found


@pytest.mark.parametrize(
    ("spec", "leaving"),
    [
        ({}, False),
        ({"unschedulable": True}, True),
        ({"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}, True),
        ({"taints": [{"key": "DeletionCandidateOfClusterAutoscaler"}]}, False),
    ],
)
def test_nodes_that_are_drained_are_observed(spec: dict[str, Any], leaving: bool) -> None:
    pool = a_pool(1)
    stores = stored(pool, on("node-1", 1))
    labels = {SCHEDULABLE: "true"}
    stores.cluster.nodes.put(
        ("", "node-1"), parse_node({"metadata": {"name": "node-1", "labels": labels}, "spec": spec})
    )
    observed = observe_pool(stores, pool)
    assert (observed.leaving, observed.targets) == ((frozenset({"node-1"}), set()) if leaving else (set(), {"node-1"}))


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "Ready", "status": "False"}], False),
        ([], True),
    ],
)
def test_a_node_whose_kubelet_is_silent_is_not_ready(conditions: list[dict[str, str]], expected: bool) -> None:
    node = parse_node({"metadata": {"name": "node-1"}, "status": {"conditions": conditions}})
    assert node.ready is expected
