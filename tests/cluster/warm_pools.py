"""Runs the controllers of warm pools in the test's process, and reads and writes pools of one namespace."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from controllers.shared.component import ControllerContext
from controllers.warmpool.agent import NetworkAgentClient
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.warm_pool import WARM_POOLS
from controllers.warmpool.warm_vm import WarmVM, parse_warm_vm
from controllers.warmpool_and_claim import build
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.clock import ApiServerClock
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.events import EVENTS, EventRecorder
from poolhouse.runtime.metrics import PREFIX, Metrics
from poolhouse.runtime.resource import NAMESPACES, VMS
from poolhouse.stack.engine.agents.addresses import NETWORK
from tests.builders import manifest
from tests.cluster.pooling import background, clear, synced, until
from tests.controllers.warmpool.builders import PERMITTED

Json = dict[str, Any]

FAST_START = {meta.SIM_PREFIX + "start-seconds": "0.2", meta.SIM_PREFIX + "stop-seconds": "0.1"}
QUICK_CHECKS = {"periodSeconds": 1, "failureThreshold": 2, "terminateThreshold": 2}
"""Health checks that a test can wait for."""


def template(memory: str = "64Mi", **faults: str) -> Json:
    annotations = FAST_START | {meta.SIM_PREFIX + key.replace("_", "-"): value for key, value in faults.items()}
    inner = {"domain": {"memory": {"guest": memory}, "devices": {}}, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"annotations": annotations}, "spec": {"template": {"spec": inner}}}


@dataclass
class RunningControllers:
    registry: CollectorRegistry
    ready_seconds: float
    """From the first list to synced caches."""

    def writes(self) -> float:
        return sum(self.written().values())

    def written(self) -> dict[str, float]:
        """The number of writes by verb, resource and status code, without Events."""
        return {
            f"{sample.labels['verb']} {sample.labels['resource']} {sample.labels['code']}": sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == f"{PREFIX}api_requests_total"
            and sample.labels["verb"] not in ("get", "list", "watch")
            and sample.labels["resource"] != "events"
        }

    def value(self, name: str, **labels: str) -> float:
        found = self.registry.get_sample_value(f"{PREFIX}warmpool_{name}", labels)
        return found or 0.0

    def violations(self) -> float:
        name = f"{PREFIX}warmpool_invariant_violations_total"
        return sum(s.value for m in self.registry.collect() for s in m.samples if s.name == name)


@asynccontextmanager
async def controllers(
    kubeconfig: Path,
    ec2: EC2Settings | None = None,
    *,
    wall: Callable[[], float] = time.time,
    agent_proxy: str = "",
    virtual_node: str = "",
) -> AsyncIterator[RunningControllers]:
    """At the end the controllers are cancelled, as by a kill. `wall` is the clock of their machine. `agent_proxy` is
    the address of the stack's proxy to the agents in its guests."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    clock = ApiServerClock(metrics, wall)
    async with await Api.connect(
        kubeconfig, user_agent="test-warm", max_connections=32, metrics=metrics, clock=clock
    ) as api:
        events = EventRecorder(api, "poolhouse.dev/controllers")
        agents, machines = NetworkAgentClient(agent_proxy), (NETWORK,) if agent_proxy else ()
        context = ControllerContext(api=api, events=events, registry=registry)
        part = build(context, ec2, machines=machines, agents=agents, virtual_node=virtual_node)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with background(events.run(), *(each.run() for each in part.informers)) as start:
            await synced(part.informers)
            ready_seconds = loop.time() - began
            start(part.work())
            yield RunningControllers(registry, ready_seconds)


@dataclass(frozen=True)
class PoolNamespace:
    """`api` has the rights of an administrator."""

    api: Api
    namespace: str

    async def pool(self, replicas: int, name: str = "web", *, metadata: Json | None = None, **spec: Any) -> Json:
        """Claims may ask for everything unless `claimPolicy` says otherwise."""
        spec["claimPolicy"] = {**PERMITTED, **spec.get("claimPolicy", {})}
        spec = {"replicas": replicas, "template": template(), **spec}
        return await self.api.create(WARM_POOLS, manifest(WARM_POOLS, name, spec, self.namespace, **(metadata or {})))

    async def change(self, name: str = "web", **spec: Any) -> Json:
        return await self.api.patch(WARM_POOLS, self.namespace, name, {"spec": spec})

    async def status(self, name: str = "web") -> Json:
        found: Json = (await self.api.get(WARM_POOLS, self.namespace, name)).get("status") or {}
        return found

    async def observed(self, name: str = "web") -> bool:
        """Whether the controllers have seen the last change of the pool."""
        found = await self.api.get(WARM_POOLS, self.namespace, name)
        return bool((found.get("status") or {}).get("observedGeneration") == found["metadata"]["generation"])

    async def available(self, name: str = "web") -> int:
        return int((await self.status(name)).get("availableReplicas", 0))

    async def condition(self, kind: str, name: str = "web") -> tuple[str, str]:
        conditions = (await self.status(name)).get("conditions", [])
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == kind), ("", ""))

    async def documents(self) -> list[Json]:
        items, _ = await self.api.list(VMS, self.namespace)
        return items

    async def vms(self) -> list[WarmVM]:
        return [parse_warm_vm(each) for each in await self.documents()]

    async def states(self) -> dict[str, int]:
        """The number of VMs in each state, without VMs that are being deleted."""
        return dict(Counter(vm.state.value if vm.state else "" for vm in await self.vms() if not vm.deleting))

    async def uids(self) -> set[str]:
        return {vm.uid for vm in await self.vms() if not vm.deleting}

    async def words(self) -> list[str]:
        """The printable statuses of the VMs."""
        return sorted((each.get("status") or {}).get("printableStatus", "") for each in await self.documents())

    async def annotate(self, vm: WarmVM, **faults: str) -> None:
        """Annotates the VM. Its annotations also change a VMI that runs."""
        annotations = {meta.SIM_PREFIX + key.replace("_", "-"): value for key, value in faults.items()}
        with suppress(NotFound):
            await self.api.patch(VMS, vm.namespace, vm.name, {"metadata": {"annotations": annotations}})

    async def news(self) -> set[str]:
        """Reasons of the events so far."""
        items, _ = await self.api.list(EVENTS, self.namespace)
        return {each["reason"] for each in items}

    async def hears(self, *reasons: str) -> None:
        """Waits for events: the recorder writes them later."""

        async def missing() -> set[str]:
            return set(reasons) - await self.news()

        await until(missing, set())


@asynccontextmanager
async def namespace(kubeconfig: Path) -> AsyncIterator[PoolNamespace]:
    """A new namespace, whose VMs are deleted at the end: tests share the engine."""
    async with await Api.connect(kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        made = await api.create(NAMESPACES, {"metadata": {"generateName": "warm-"}})
        found = PoolNamespace(api, made["metadata"]["name"])
        try:
            yield found
        finally:
            await clear(api, found.namespace)
