"""Pods on EC2 instances with an agent in each: what the design document wants to be tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from controllers.virtualnode.pods import build
from controllers.virtualnode.sources import Sources
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.vm_agent import VMAgents
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import PODS
from tests.builders import manifest
from tests.cluster.claiming import Counter
from tests.cluster.instances import Ec2
from tests.cluster.pooling import background, synced, until
from tests.cluster.test_warm_ec2 import agents, cloud, desk, in_use, made, states
from tests.cluster.warm_pools import controllers
from tests.controllers.warmpool.agents import Agent
from tests.waiting import eventually

Json = dict[str, Any]

__all__ = ["agents", "cloud", "desk"]

NODE = "poolhouse"


@asynccontextmanager
async def with_virtual_node(kubeconfig: Path, ec2: EC2Settings) -> AsyncIterator[None]:
    """The controllers of warm pools, claims and Pods. Pods name the node themselves, because no scheduler runs here."""
    async with (
        controllers(kubeconfig, ec2, virtual_node=NODE),
        await Api.connect(kubeconfig, user_agent="test-pods") as api,
    ):
        events = EventRecorder(api, "poolhouse.dev/controllers")
        sources = Sources.of_node(api, NODE)
        controller = build(api, events, sources, VMAgents(api))
        async with background(events.run(), *(each.run() for each in sources.informers)) as start:
            await synced(sources.informers)
            start(controller.run())
            yield


async def create_pod(desk: Counter, **spec: Any) -> Json:
    containers = [{"name": "main", "image": "registry.example/builder:1", "args": ["all"]}]
    inner = {"nodeName": NODE, "automountServiceAccountToken": False, "containers": containers, **spec}
    return await desk.api.create(PODS, manifest(PODS, "build", inner, desk.namespace))


async def status(desk: Counter) -> Json:
    found: Json = (await desk.api.get(PODS, desk.namespace, "build")).get("status") or {}
    return found


async def phase(desk: Counter) -> str:
    return str((await status(desk)).get("phase"))


async def pods(desk: Counter) -> int:
    return len((await desk.api.list(PODS, desk.namespace))[0])


async def test_a_valid_pod_gets_an_instance_with_its_tags(
    control_plane: Any, desk: Counter, cloud: Ec2, agents: Agent
) -> None:
    grpc = {"port": agents.port, "protocol": "GRPC"}
    async with with_virtual_node(control_plane.kubeconfig, cloud.settings):
        await made(desk, cloud, 1, default=True, ec2=grpc, claimPolicy={"allowPods": True})
        await until(states(cloud), ["Ready"])
        waiting = cloud.ids()
        pod = await create_pod(desk)
        uid = pod["metadata"]["uid"]
        await until(lambda: phase(desk), "Running")
        used = await in_use(cloud)
        assert used["InstanceId"] in waiting
        assert (await status(desk))["podIP"] == used["PrivateIpAddress"]
        assert agents.launched == [{"name": "build", "namespace": desk.namespace, "uid": uid}]
        tags = [used["Tags"][f"KubernetesPod{word}"] for word in ("Name", "Namespace", "UUID")]
        assert tags == ["build", desk.namespace, uid]
        notes = (await desk.api.get(PODS, desk.namespace, "build"))["metadata"]["annotations"]
        assert notes[meta.VM] == used["InstanceId"]
        await until(states(cloud), ["InUse", "Ready"])
        await desk.api.delete(PODS, desk.namespace, "build")
        await until(lambda: pods(desk), 0)
        assert agents.terminated
        assert cloud.ids("shutting-down", "terminated") >= waiting


async def test_an_application_that_fails_fails_its_pod_and_ends_its_instance(
    control_plane: Any, desk: Counter, cloud: Ec2, agents: Agent
) -> None:
    agents.phase = "Failed"
    async with with_virtual_node(control_plane.kubeconfig, cloud.settings):
        grpc = {"port": agents.port, "protocol": "GRPC"}
        await made(desk, cloud, 1, default=True, ec2=grpc, claimPolicy={"allowPods": True})
        await until(states(cloud), ["Ready"])
        (first,) = cloud.ids()
        await create_pod(desk, restartPolicy="Never")
        await until(lambda: phase(desk), "Failed")
        await until(lambda: first in cloud.ids("shutting-down", "terminated"), True)


async def test_a_pod_without_a_configured_pool_creates_no_instance(
    control_plane: Any, desk: Counter, cloud: Ec2
) -> None:
    async with with_virtual_node(control_plane.kubeconfig, cloud.settings):
        await create_pod(desk)

        async def reason() -> str:
            return str((await status(desk)).get("reason"))

        await until(reason, "NoWarmPool")
        assert (await status(desk))["phase"] == "Pending"
        await made(desk, cloud, 0, default=True)
        await until(reason, "PodsNotAllowed")
        assert cloud.ids() == set()
        await desk.api.delete(PODS, desk.namespace, "build")
        await eventually(lambda: _gone(desk))


async def _gone(desk: Counter) -> bool:
    return await pods(desk) == 0
