"""A VM that a drain has stopped is in the log and in an event, once."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.evicted_vms import evictions
from controllers.pool.failures import failing_vms
from controllers.pool.pools import Pool
from controllers.shared.sources import Node
from controllers.shared.vmi import VMI
from poolhouse.api.kinds.decisions import Decision
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.controller import RetryWithBackoff
from tests.controllers.pool.builders import NOW, a_pool, ago, snapshot, vm, vmi
from tests.controllers.pool.controlled import controlled

RUNNING = vmi("web-1", phase="Running", node="node-1", eviction_strategy="None")
ENDED = replace(RUNNING, phase="Succeeded", ended_at=ago(2), phase_times=(("Running", ago(60)),))
CRASHED = replace(ENDED, phase="Failed")
MOVED = ClusterSettings(eviction_strategy="LiveMigrate")
AGAIN = "stopped while its node node-1 was drained; KubeVirt starts it on another node"


def stays(strategy: str) -> str:
    not_again = f"its run strategy is {strategy}, so that KubeVirt does not start it again"
    return f"stopped while its node node-1 was drained; {not_again}"


@pytest.mark.parametrize(
    ("ended", "given", "said"),
    [
        pytest.param(ENDED, {}, [AGAIN], id="its guest has shut down"),
        pytest.param(CRASHED, {}, [AGAIN], id="its guest was killed"),
        pytest.param(replace(ENDED, node="node-2"), {}, [], id="no drain"),
        pytest.param(replace(ENDED, deleted_at=ago(3)), {}, [], id="a client or the pool has deleted the VMI"),
        pytest.param(replace(ENDED, eviction_strategy="LiveMigrate"), {}, [], id="KubeVirt moves the VM"),
        pytest.param(replace(ENDED, eviction_strategy=""), {}, [AGAIN], id="the strategy of the cluster is None"),
        pytest.param(replace(ENDED, eviction_strategy=""), {"cluster": MOVED}, [], id="that of the cluster moves it"),
        pytest.param(replace(ENDED, eviction_strategy=""), {"cluster": None}, [AGAIN], id="KubeVirt wrote no strategy"),
        pytest.param(replace(ENDED, owner_uid="u-other"), {}, [], id="of a VM that has left the pool"),
        pytest.param(CRASHED, {"run_strategy": "RerunOnFailure"}, [AGAIN], id="started after a failure"),
        pytest.param(ENDED, {"run_strategy": "RerunOnFailure"}, [stays("RerunOnFailure")], id="not started otherwise"),
        pytest.param(CRASHED, {"run_strategy": "Manual"}, [stays("Manual")], id="nothing starts it"),
    ],
)
def test_a_vm_that_a_drain_has_stopped_is_found(ended: VMI, given: dict[str, Any], said: list[str]) -> None:
    strategy, cluster = given.get("run_strategy", "Always"), given.get("cluster", ClusterSettings())
    observed = snapshot(
        a_pool(3),
        vm(1, run_strategy=strategy),
        vm(2),
        ended_vmis=(ended,),
        leaving=frozenset({"node-1"}),
        cluster=cluster,
    )
    found = list(evictions(observed, NOW))
    assert [each.message for each in found] == said
    assert all(
        (each.reason, each.time, each.node, each.vms) == ("Evicted", ago(2), "node-1", ("web-1/u-web-1",))
        for each in found
    )


class Telling:
    def __init__(self) -> None:
        self.told: list[Decision] = []

    def evicted(self, pool: Pool, found: Decision) -> None:
        self.told.append(found)


@pytest.mark.parametrize("logged", [False, True])
async def test_the_controller_reports_an_eviction_once(logged: bool) -> None:
    """Also after KubeVirt has replaced the VMI. Another leader may have written it into the log."""
    controller, telling = controlled(), Telling()
    stores = controller.stores
    controller.stores = replace(stores, cluster=replace(stores.cluster, settings=ClusterSettings))
    controller.writer.events = telling
    stores.cluster.nodes.put(("", "node-1"), Node("node-1", {}, leaving=True))
    started = replace(RUNNING, uid="run-2", node="node-2")
    for old, new in ((RUNNING, ENDED), (ENDED, replace(ENDED, deleted_at=ago(1))), (ENDED, None), (None, started)):
        controller.changes.vmi_changed(lambda key, pause: None, old, new)
    observed = controller.observe(("default", "web"))
    assert observed is not None
    expected = list(evictions(observed, NOW))
    assert len(expected) == 1
    if logged:
        shown = a_pool(3, autohealing={}, status={"decisions": [each.json() for each in expected]})
        stores.pools.put(shown.key, shown)
    for _ in range(2):
        with contextlib.suppress(RetryWithBackoff):
            await controller.reconcile(("default", "web"))
    assert telling.told == ([] if logged else expected)


async def test_an_eviction_is_no_failure_of_a_vm_that_runs_elsewhere_again() -> None:
    """No VM of the pool may be left on the node, which then is that of the ended VMI alone."""
    controller = controlled()
    controller.stores.cluster.nodes.put(("", "node-1"), Node("node-1", {}, leaving=True))
    controller.changes.vmi_changed(lambda key, pause: None, RUNNING, CRASHED)
    observed: Any = controller.observe(("default", "web"))
    assert observed.ended_vmis == (CRASHED,)
    assert failing_vms(observed, NOW) == {}
