"""The cloud provider of the cluster-autoscaler over real gRPC, with pools of a real API server and their controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from controllers.pool.pools import POOLS
from poolhouse.api.kinds import meta
from poolhouse.nodegroups.cluster import Cluster
from poolhouse.nodegroups.server import serve
from tests.cluster.pooling import Place, controller, template, until
from tests.cluster.test_pool_autoscaler import AUTOSCALERS, autoscaler
from tests.nodegroups.calls import Autoscaler

Json = dict[str, Any]

LIMITS = {meta.NODE_GROUP_MIN_SIZE: "1", meta.NODE_GROUP_MAX_SIZE: "5"}
HOOKS = [{"name": "drain", "transition": "Terminating", "timeoutSeconds": 3600}]


@asynccontextmanager
async def provider(place: Place, selector: str | None = None) -> AsyncIterator[Autoscaler]:
    """The provider of the namespace, and an autoscaler that asks it."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(Cluster(place.api, place.namespace, selector), "127.0.0.1", 0, None, port.set_result), name="provider"
    )
    waits: list[asyncio.Future[Any]] = [port, serving]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    assert port.done(), serving.exception()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port.result()}") as channel:
            yield Autoscaler(channel)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def pool(place: Place, replicas: int, **spec: Any) -> None:
    """A pool of halted VMs, which is a node group."""
    document = place.document(replicas, template=template(running=False), **spec)
    document["metadata"]["annotations"] = LIMITS
    await place.api.create(POOLS, document)


async def replicas(place: Place) -> Any:
    return (await place.seen())["spec"]["replicas"]


def node(name: str) -> Json:
    return {"providerID": f"kubevirt://{name}", "name": name}


async def annotate(place: Place, **annotations: str | None) -> None:
    await place.api.patch(POOLS, place.namespace, "web", {"metadata": {"annotations": annotations}})


@pytest.mark.sentence("1.3")
async def test_scale_out_and_scale_in_of_exactly_the_named_node(control_plane: Any, place: Place) -> None:
    await pool(place, 2)
    await place.vm("control-plane-1")
    async with controller(control_plane.kubeconfig), provider(place) as asks:
        await until(place.names, ["control-plane-1", "web-1", "web-2"])
        await asks.call("Refresh")
        assert [each.id for each in (await asks.call("NodeGroups")).nodeGroups] == ["web"]
        assert (await asks.call("NodeGroupForNode", node=node("web-1"))).nodeGroup.id == "web"
        assert (await asks.call("NodeGroupForNode", node=node("control-plane-1"))).nodeGroup.id == ""

        await asks.call("NodeGroupIncreaseSize", id="web", delta=2)
        assert (await asks.call("NodeGroupTargetSize", id="web")).targetSize == 4
        await until(place.names, ["control-plane-1", "web-1", "web-2", "web-3", "web-4"])
        assert (await asks.refused("NodeGroupIncreaseSize", id="web", delta=2)).startswith("FAILED_PRECONDITION")

        await asks.call("NodeGroupDeleteNodes", id="web", nodes=[node("web-2")])
        assert (await asks.call("NodeGroupTargetSize", id="web")).targetSize == 3
        await asks.call("NodeGroupDeleteNodes", id="web", nodes=[node("web-2")])
        await until(place.names, ["control-plane-1", "web-1", "web-3", "web-4"])
        await asks.call("NodeGroupDeleteNodes", id="web", nodes=[node("web-2")])
        assert await replicas(place) == 3

        # The name returns with another VM, which stays.
        await asks.call("NodeGroupIncreaseSize", id="web", delta=1)
        await until(place.names, ["control-plane-1", "web-1", "web-2", "web-3", "web-4"])
        assert await asks.refused("NodeGroupDeleteNodes", id="web", nodes=[node("control-plane-1")]) == (
            "INVALID_ARGUMENT: VM control-plane-1 is not one of pool web"
        )


async def test_a_lifecycle_hook_holds_the_node_and_nothing_replaces_it(control_plane: Any, place: Place) -> None:
    await pool(place, 3, lifecycleHooks=HOOKS)
    async with controller(control_plane.kubeconfig), provider(place) as asks:
        await until(place.names, ["web-1", "web-2", "web-3"])
        await asks.call("NodeGroupDeleteNodes", id="web", nodes=[node("web-2")])

        async def held() -> list[str]:
            vms = (await place.vms()).items()
            return [name for name, vm in vms if meta.TRANSITION in vm["metadata"]["labels"]]

        await until(held, ["web-2"])
        instances = (await asks.call("NodeGroupNodes", id="web")).instances
        assert {each.id for each in instances if each.status.instanceState == 3} == {"kubevirt://web-2"}
        # A later request counts the node that waits as gone.
        await asks.call("NodeGroupDeleteNodes", id="web", nodes=[node("web-2"), node("web-3")])
        assert await replicas(place) == 1
        await until(held, ["web-2", "web-3"])
        for name in ("web-2", "web-3"):
            await place.meta(name, annotations={f"{meta.HOOK_PREFIX}drain": None})
        await until(place.names, ["web-1"])


async def test_an_increase_without_vms_is_taken_back(place: Place) -> None:
    await pool(place, 1)
    async with provider(place) as asks:
        await asks.call("NodeGroupIncreaseSize", id="web", delta=3)
        await asks.call("NodeGroupDecreaseTargetSize", id="web", delta=-3)
        assert await replicas(place) == 1


async def test_calls_at_the_same_time_are_all_counted(place: Place) -> None:
    await pool(place, 1)
    async with provider(place) as asks:
        await asyncio.gather(*(asks.call("NodeGroupIncreaseSize", id="web", delta=1) for _ in range(3)))
        assert await replicas(place) == 4


async def test_pools_that_the_autoscaler_must_leave_alone(place: Place) -> None:
    await pool(place, 2)
    async with provider(place) as asks:

        async def groups() -> list[str]:
            await asks.call("Refresh")
            return [each.id for each in (await asks.call("NodeGroups")).nodeGroups]

        assert await groups() == ["web"]
        await place.change(paused=True)
        assert await groups() == []
        assert await asks.refused("NodeGroupIncreaseSize", id="web", delta=1) == (
            "FAILED_PRECONDITION: pool web is no node group: the pool is paused"
        )
        await place.change(paused=False)
        await place.api.create(AUTOSCALERS, autoscaler(place.namespace))
        assert await groups() == []
        assert await asks.refused("NodeGroupDeleteNodes", id="web", nodes=[node("web-1")]) == (
            "FAILED_PRECONDITION: pool web is no node group: HorizontalPodAutoscaler web also sets its replicas"
        )
        await place.api.delete(AUTOSCALERS, place.namespace, "web")
        await annotate(place, **{meta.NODE_GROUP_MAX_SIZE: "many"})
        assert await groups() == []
        await annotate(place, **{meta.NODE_GROUP_MAX_SIZE: None, meta.NODE_GROUP_MIN_SIZE: None})
        assert await groups() == []
        assert (await asks.refused("NodeGroupTargetSize", id="web")).startswith("NOT_FOUND")
        await place.api.delete(POOLS, place.namespace, "web")
        assert (await asks.refused("NodeGroupIncreaseSize", id="web", delta=1)).startswith("NOT_FOUND")


async def test_the_pools_own_limit_is_the_maximum_of_the_group(place: Place) -> None:
    await pool(place, 2, maxReplicas=3)
    async with provider(place) as asks:
        (found,) = (await asks.call("NodeGroups")).nodeGroups
        assert (found.minSize, found.maxSize) == (1, 3)
        assert (await asks.refused("NodeGroupIncreaseSize", id="web", delta=2)).startswith("FAILED_PRECONDITION")


async def test_a_provider_changes_only_the_pools_that_it_selects(control_plane: Any, place: Place) -> None:
    await pool(place, 2)
    async with provider(place, "cluster=other") as asks:
        for name in ("web", "web/scale", "web/status", "../web", ""):
            told = await asks.refused("NodeGroupIncreaseSize", id=name, delta=1)
            assert told.startswith("NOT_FOUND: there is no pool"), told
            assert (await asks.refused("NodeGroupDeleteNodes", id=name, nodes=[])).startswith("NOT_FOUND")
        assert await replicas(place) == 2
        await place.api.patch(POOLS, place.namespace, "web", {"metadata": {"labels": {"cluster": "other"}}})
        await asks.call("NodeGroupIncreaseSize", id="web", delta=1)
    assert await replicas(place) == 3
