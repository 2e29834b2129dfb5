"""A pool whose VMs an eviction stops: its PodDisruptionBudget, and evictions as `kubectl drain` requests them.

The engine has no launcher Pods, so the tests make them, with the labels that KubeVirt gives them, and act as the
kubelet. The budget, its status and the answers to evictions are those of Kubernetes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from controllers.pool.pools import POOLS
from controllers.shared.evictions import BUDGETS, pod_labels
from controllers.shared.vmi import parse_vmi
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound, Throttled
from poolhouse.runtime.events import EVENTS
from poolhouse.runtime.resource import NODES, PODS, VMIS
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest
from tests.cluster.guards import MESSAGE, budgets_refused
from tests.cluster.pooling import Place, controller, eventually, template, until
from tests.cluster.simulated.test_pool_rollout import complete

Json = dict[str, Any]


@pytest_asyncio.fixture
async def running(simulated: StackPaths, guests: Place) -> AsyncIterator[Place]:
    """The controllers have only their own rights."""
    async with controller(simulated.kubeconfig_of("controllers")):
        yield guests


def evicted() -> Json:
    """A template of VMs that an eviction stops."""
    found = template()
    found["spec"]["template"]["spec"]["evictionStrategy"] = "None"
    return found


async def budget(place: Place, name: str = "web") -> Json:
    try:
        return await place.api.get(BUDGETS, place.namespace, name)
    except NotFound:
        return {}


async def least(place: Place) -> Any:
    return (await budget(place)).get("spec", {}).get("minAvailable")


async def allowed(place: Place) -> Any:
    return (await budget(place)).get("status", {}).get("disruptionsAllowed")


async def launch(place: Place) -> None:
    """A ready launcher Pod for each VMI that has none."""
    vmis, _ = await place.api.list(VMIS, place.namespace)
    pods, _ = await place.api.list(PODS, place.namespace)
    have = {each["metadata"]["labels"][meta.KUBEVIRT_CREATED_BY] for each in pods}
    for each in vmis:
        if each["metadata"]["uid"] not in have:
            await _launch(place.api, place.namespace, each)


async def _launch(api: Api, namespace: str, vmi: Json) -> None:
    name = f"virt-launcher-{vmi['metadata']['name']}"
    container = {"name": "compute", "image": "virt-launcher"}
    spec = {
        "nodeName": vmi["status"]["nodeName"],
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    await api.create(PODS, manifest(PODS, name, spec, namespace, labels=pod_labels(parse_vmi(vmi))))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.patch(PODS, namespace, name, {"status": ready}, subresource="status")


async def evict(place: Place, vm: str) -> bool:
    """Whether the API server has evicted the launcher Pod of the VM."""
    name = f"virt-launcher-{vm}"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": place.namespace, "name": name}}
    try:
        await place.api.request("POST", f"/api/v1/namespaces/{place.namespace}/pods/{name}/eviction", body=body)
    except Throttled:  # "it would violate the pod's disruption budget"
        return False
    return True


async def test_a_drain_stops_no_more_vms_at_once_than_the_pool_would(running: Place) -> None:
    pool = await running.pool(4, maxUnavailable=1, template=evicted())
    await complete(running)
    await until(lambda: least(running), 3)
    owner = (await budget(running))["metadata"]["ownerReferences"]
    assert [each["uid"] for each in owner if each["controller"]] == [pool["metadata"]["uid"]]
    await launch(running)
    await until(lambda: allowed(running), 1)
    assert await evict(running, "web-1")
    assert not await evict(running, "web-2"), "one VM is away"
    # KubeVirt starts the VM again.
    await launch(running)
    await until(lambda: evict(running, "web-2"), True)
    assert not await evict(running, "web-3")
    await launch(running)
    await running.change(maxUnavailable=3)
    await until(lambda: allowed(running), 3)


async def test_the_budget_ends_with_its_need(running: Place) -> None:
    await running.pool(3, maxUnavailable=1, template=evicted())
    await complete(running)
    await until(lambda: least(running), 2)
    await running.change(evictionBudget="Disabled")
    await until(lambda: budget(running), {})
    await running.change(evictionBudget="Enabled", replicas=4)
    await until(lambda: least(running), 3)


async def test_a_budget_that_an_earlier_pool_left_is_made_again(running: Place) -> None:
    pool = await running.pool(3, maxUnavailable=1, template=evicted())
    await complete(running)
    await until(lambda: least(running), 2)
    await running.api.patch(BUDGETS, running.namespace, "web", {"metadata": {"ownerReferences": None}})

    async def owners() -> Any:
        return [each["uid"] for each in (await budget(running)).get("metadata", {}).get("ownerReferences", ())]

    await until(owners, [pool["metadata"]["uid"]])


async def test_a_budget_of_the_user_takes_precedence(running: Place) -> None:
    labelled = evicted()
    labelled["spec"]["template"]["metadata"] = {"labels": {"app": "shop"}}
    await running.pool(3, maxUnavailable=1, template=labelled)
    await complete(running)
    await until(lambda: least(running), 2)
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "shop"}}}
    await running.api.create(BUDGETS, manifest(BUDGETS, "shop", spec, running.namespace))
    await until(lambda: budget(running), {})

    await until(lambda: reason(running), "ForeignEvictionBudget")
    assert "shop" in (await running.condition("EvictionBudgetFailure"))["message"]
    await running.api.delete(BUDGETS, running.namespace, "shop")
    await until(lambda: least(running), 2)
    await until(lambda: reason(running), "NoEvictionBudgetFailure")


async def test_a_refused_budget_stops_nothing_else(running: Place) -> None:
    async with budgets_refused(running.api, running.namespace):
        await running.pool(2, maxUnavailable=1, template=evicted())
        await complete(running)
        await running.change(replicas=3)
        await complete(running)
        await until(lambda: said(running), True)
        assert (await running.condition("ReplicaFailure")).get("status", "False") == "False"
        assert await budget(running) == {}
    await until(lambda: least(running), 2)
    await until(lambda: reason(running), "NoEvictionBudgetFailure")


async def said(place: Place) -> bool:
    """Whether the pool quotes the policy."""
    found = await place.condition("EvictionBudgetFailure")
    return found.get("reason") == "EvictionBudgetRefused" and MESSAGE in found["message"]


async def reason(place: Place) -> Any:
    return (await place.condition("EvictionBudgetFailure")).get("reason")


async def evictions(place: Place) -> list[Json]:
    status = (await place.api.get(POOLS, place.namespace, "web")).get("status") or {}
    return [each for each in status.get("decisions") or () if each["reason"] == "Evicted"]


async def test_a_pool_says_which_vm_a_drain_has_stopped(running: Place) -> None:
    with_pods = evicted()
    with_pods["spec"]["template"]["metadata"] = {"annotations": {meta.SIM_PREFIX + "launcher-pods": "true"}}
    await running.pool(2, maxUnavailable=1, template=with_pods)
    await complete(running)
    await until(lambda: allowed(running), 1)
    vmi = await running.api.get(VMIS, running.namespace, "web-1")
    node, uid = vmi["status"]["nodeName"], vmi["metadata"]["uid"]
    pods, _ = await running.api.list(PODS, running.namespace, label_selector=f"{meta.KUBEVIRT_CREATED_BY}={uid}")
    pod = pods[0]["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": running.namespace, "name": pod}}
    await running.api.patch(NODES, None, node, {"spec": {"unschedulable": True}})
    try:
        path = f"/api/v1/namespaces/{running.namespace}/pods/{pod}/eviction"
        await running.api.request("POST", path, body=body)
        (found,) = await eventually(lambda: evictions(running))
    finally:
        await running.api.patch(NODES, None, node, {"spec": {"unschedulable": None}})
    assert found["node"] == node
    assert found["vms"][0].startswith("web-1/")
    expected = f"stopped while its node {node} was drained; KubeVirt starts it on another node"
    assert found["message"] == expected
    events, _ = await running.api.list(EVENTS, running.namespace)
    assert [each["note"] for each in events if each["reason"] == "Evicted"] == [f"VM web-1 {expected}"]
    await complete(running)
    assert len(await evictions(running)) == 1


async def test_a_pool_whose_vms_migrate_has_none(running: Place) -> None:
    """The KubeVirt object of the stack says LiveMigrate."""
    await running.pool(2, maxUnavailable=1)
    await complete(running)
    assert await budget(running) == {}
