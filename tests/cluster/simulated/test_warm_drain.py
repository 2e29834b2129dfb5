"""Drains under claims: the PodDisruptionBudget of a warm pool, and what a claim says while its node is drained.

The engine makes launcher Pods. The budget, its status and the answers to evictions are those of Kubernetes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest_asyncio

from controllers.shared.evictions import BUDGETS
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import meta
from poolhouse.runtime.errors import NotFound, Throttled
from poolhouse.runtime.resource import NODES, PODS, VMIS
from tests.cluster.claiming import Counter
from tests.cluster.guards import budgets_refused
from tests.cluster.pooling import until
from tests.cluster.warm_pools import controllers, template

Json = dict[str, Any]


@pytest_asyncio.fixture
async def shop(desk: Counter, ours: Path) -> AsyncIterator[Counter]:
    """The controllers have only their own rights."""
    async with controllers(ours):
        yield desk


def evicted(strategy: str = "None") -> Json:
    """A template of VMs with launcher Pods."""
    found, annotations = template(), {meta.SIM_PREFIX + "launcher-pods": "true"}
    found["spec"]["template"]["metadata"] = {"annotations": annotations, "labels": {"app": "ci"}}
    found["spec"]["template"]["spec"]["evictionStrategy"] = strategy
    return found


async def vm_of(shop: Counter, claim: str) -> str:
    return str((await shop.becomes(claim, "Ready"))["vmRef"]["name"])


async def vmi(shop: Counter, name: str) -> Json:
    return await shop.api.get(VMIS, shop.namespace, name)


async def protected(shop: Counter) -> list[str] | None:
    """UIDs of the VMIs for which drains wait. None without a budget."""
    try:
        found = await shop.api.get(BUDGETS, shop.namespace, "web.claims")
    except NotFound:
        return None
    expressions = at(found, "spec", "selector", "matchExpressions") or [{}]
    return list(expressions[0].get("values", ()))


async def current(shop: Counter) -> bool:
    """Whether Kubernetes has counted the Pods of the budget, without which it refuses each eviction."""
    found = await shop.api.get(BUDGETS, shop.namespace, "web.claims")
    least = found["spec"]["minAvailable"]
    return bool(found["metadata"]["generation"] == at(found, "status", "observedGeneration")) and bool(
        at(found, "status", "currentHealthy") == least
    )


async def evict(shop: Counter, vm: str) -> bool:
    """Whether the API server has evicted the launcher Pods of the VM."""
    pods, _ = await shop.api.list(PODS, shop.namespace)
    mine = [each["metadata"]["name"] for each in pods if each["metadata"]["name"].startswith(f"virt-launcher-{vm}-")]
    for pod in mine:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": shop.namespace, "name": pod}}
        path = f"/api/v1/namespaces/{shop.namespace}/pods/{pod}/eviction"
        try:
            await shop.api.request("POST", path, body=body)
        except Throttled:  # by a budget, or by KubeVirt's webhook
            return False
    return bool(mine)


async def node_of(shop: Counter, vm: str) -> str:
    return str((await vmi(shop, vm))["status"]["nodeName"])


@asynccontextmanager
async def cordoned(shop: Counter, node: str) -> AsyncIterator[None]:
    try:
        await shop.api.patch(NODES, None, node, {"spec": {"unschedulable": True}})
        yield
    finally:
        await shop.api.patch(NODES, None, node, {"spec": {"unschedulable": None}})


async def test_a_drain_waits_for_a_claim_and_stops_waiting_vms_at_once(shop: Counter) -> None:
    await shop.filled(1, template=evicted(), claimPolicy={"evictionDelaySeconds": 3600})
    await shop.claim("mine", poolName="web")
    mine = await vm_of(shop, "mine")
    await until(lambda: protected(shop), [(await vmi(shop, mine))["metadata"]["uid"]])
    await until(lambda: current(shop), True)
    await until(shop.ready, 1)
    waiting = next(each.name for each in await shop.vms() if each.name != mine and not each.deleting)
    assert not await evict(shop, mine)
    assert await evict(shop, waiting)
    async with cordoned(shop, await node_of(shop, mine)):
        await until(lambda: shop.reason("mine", "Evicting"), "NodeDraining")
        assert not await evict(shop, mine)
        # The author of the pool ends the wait.
        await shop.change(claimPolicy={"evictionBudget": "Disabled"})
        await until(lambda: protected(shop), None)
        await until(lambda: shop.reason("mine", "Evicting"), "EvictionAllowed")
        await until(lambda: evict(shop, mine), True)
        await shop.hears("Evicted")
        # KubeVirt starts the VM on the other node, where it may stay.
        await until(lambda: shop.reason("mine", "Ready"), "HandedOver")
        await until(lambda: shop.reason("mine", "Evicting"), "")


async def test_a_drain_does_not_wait_for_ever_for_a_claim_without_an_end(shop: Counter) -> None:
    await shop.filled(1, template=evicted(), claimPolicy={"evictionDelaySeconds": 2})
    await shop.claim("mine", poolName="web")
    mine = await vm_of(shop, "mine")
    uid = (await vmi(shop, mine))["metadata"]["uid"]
    await until(lambda: protected(shop), [uid])
    async with cordoned(shop, await node_of(shop, mine)):
        await until(lambda: shop.reason("mine", "Evicting"), "EvictionAllowed")
        await until(lambda: protected(shop), None)
        await until(lambda: evict(shop, mine), True)
        await shop.hears("NodeDraining", "EvictionAllowed", "Evicted")


async def test_a_claim_that_ends_delays_no_drain(shop: Counter) -> None:
    await shop.filled(1, template=evicted())
    await shop.claim("mine", poolName="web")
    await vm_of(shop, "mine")
    await shop.claim("other", poolName="web")
    other = await vm_of(shop, "other")
    await until(lambda: _count(shop), 2)
    await shop.alter("mine", release=True)
    await until(lambda: protected(shop), [(await vmi(shop, other))["metadata"]["uid"]])
    await shop.unclaim("other")
    await until(lambda: protected(shop), None)


async def _count(shop: Counter) -> int:
    return len(await protected(shop) or ())


async def test_a_budget_of_the_user_takes_precedence(shop: Counter) -> None:
    await shop.filled(1, template=evicted())
    await shop.claim("mine", poolName="web")
    await vm_of(shop, "mine")
    await until(lambda: _count(shop), 1)
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "ci"}}}
    budget = {"metadata": {"namespace": shop.namespace, "name": "own"}, "spec": spec}
    await shop.api.create(BUDGETS, {"apiVersion": BUDGETS.api_version, "kind": BUDGETS.kind, **budget})
    await until(lambda: shop.condition("EvictionBudgetFailure"), ("True", "ForeignEvictionBudget"))
    await until(lambda: protected(shop), None)
    await shop.api.delete(BUDGETS, shop.namespace, "own")
    await until(lambda: _count(shop), 1)
    await until(lambda: shop.condition("EvictionBudgetFailure"), ("False", "NoEvictionBudgetFailure"))


async def test_a_refused_budget_stops_nothing_else(shop: Counter) -> None:
    async with budgets_refused(shop.api, shop.namespace):
        await shop.filled(1, template=evicted())
        await shop.claim("mine", poolName="web")
        mine = await vm_of(shop, "mine")
        await until(lambda: shop.condition("EvictionBudgetFailure"), ("True", "EvictionBudgetRefused"))
        await until(shop.ready, 1)
        async with cordoned(shop, await node_of(shop, mine)):
            await until(lambda: shop.reason("mine", "Evicting"), "EvictionAllowed")
    await until(lambda: _count(shop), 1)
    await until(lambda: shop.condition("EvictionBudgetFailure"), ("False", "NoEvictionBudgetFailure"))


async def test_an_eviction_moves_a_claimed_vm_that_migrates(shop: Counter) -> None:
    await shop.filled(1, template=evicted("LiveMigrate"))
    await shop.claim("mine", poolName="web")
    mine = await vm_of(shop, "mine")
    uid = (await vmi(shop, mine))["metadata"]["uid"]
    async with cordoned(shop, "node-1"), cordoned(shop, "node-2"):
        assert not await evict(shop, mine)
        await until(lambda: shop.reason("mine", "Evicting"), "Evacuating")  # no other node takes it yet
    await until(lambda: shop.reason("mine", "Evicting"), "")
    assert (await vmi(shop, mine))["metadata"]["uid"] == uid
    assert await protected(shop) is None
