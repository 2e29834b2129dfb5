"""Warm pools on a real API server: the controllers in the test's own process, and short words for what tests do."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.warm_pool import WARM_POOLS
from controllers.warmpool.warm_vm import WarmVM, parse_warm_vm
from controllers.warmpool_and_claim import build
from kinds import meta
from runtime.api import Api
from runtime.clock import ApiServerClock
from runtime.errors import NotFound
from runtime.events import EVENTS, EventRecorder
from runtime.metrics import PREFIX, Metrics
from runtime.resource import VMIS, VMS
from tests.cluster.pooling import NAMESPACES, PATIENCE_SECONDS, until

Json = dict[str, Any]

QUICK = {meta.SIM_PREFIX + "start-seconds": "0.2", meta.SIM_PREFIX + "stop-seconds": "0.1"}
HASTY = {"periodSeconds": 1, "failureThreshold": 2, "terminateThreshold": 2}
"""health checks that end within a test"""


def template(memory: str = "64Mi", **faults: str) -> Json:
    annotations = QUICK | {meta.SIM_PREFIX + key.replace("_", "-"): value for key, value in faults.items()}
    inner = {"domain": {"memory": {"guest": memory}, "devices": {}}, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"annotations": annotations}, "spec": {"template": {"spec": inner}}}


@dataclass
class Running:
    registry: CollectorRegistry
    ready_seconds: float
    """from the first list to the first look"""

    def writes(self) -> float:
        return sum(self.written().values())

    def written(self) -> dict[str, float]:
        """How often what was written, without Events."""
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
    kubeconfig: Path, ec2: EC2Settings | None = None, fast_seconds: float = 0
) -> AsyncIterator[Running]:
    """On leaving, they are cut off wherever they are, as when they are killed. Their machine's clock is so much ahead
    of everybody else's."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    clock = ApiServerClock(metrics, lambda: time.time() + fast_seconds)
    async with await Api.connect(
        kubeconfig, user_agent="test-warm", max_connections=32, metrics=metrics, clock=clock
    ) as api:
        events = EventRecorder(api, "poolhouse.dev/controllers")
        part = build(api, events, None, registry, "", ec2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        tasks = [asyncio.create_task(each.run()) for each in part.informers]
        tasks.append(asyncio.create_task(events.run()))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                for informer in part.informers:
                    await informer.synced()
            tasks.append(asyncio.create_task(part.work()))
            yield Running(registry, loop.time() - began)
            assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class Place:
    """A namespace. `api` is the administrator's."""

    api: Api
    namespace: str

    async def pool(self, replicas: int, name: str = "web", *, metadata: Json | None = None, **spec: Any) -> Json:
        body = {
            "apiVersion": WARM_POOLS.api_version,
            "kind": WARM_POOLS.kind,
            "metadata": {"namespace": self.namespace, "name": name, **(metadata or {})},
            "spec": {"replicas": replicas, "template": template(), **spec},
        }
        return await self.api.create(WARM_POOLS, body)

    async def change(self, name: str = "web", **spec: Any) -> Json:
        return await self.api.patch(WARM_POOLS, self.namespace, name, {"spec": spec})

    async def status(self, name: str = "web") -> Json:
        found: Json = (await self.api.get(WARM_POOLS, self.namespace, name)).get("status") or {}
        return found

    async def available(self, name: str = "web") -> int:
        return int((await self.status(name)).get("availableReplicas", 0))

    async def condition(self, kind: str, name: str = "web") -> tuple[str, str]:
        conditions = (await self.status(name)).get("conditions", [])
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == kind), ("", ""))

    async def documents(self) -> list[Json]:
        items, _ = await self.api.list(VMS, self.namespace)
        return items

    async def machines(self) -> list[WarmVM]:
        return [parse_warm_vm(each) for each in await self.documents()]

    async def states(self) -> dict[str, int]:
        """How many there are in each state, without those that are being deleted."""
        return dict(Counter(m.state.value if m.state else "" for m in await self.machines() if not m.deleting))

    async def uids(self) -> set[str]:
        return {m.uid for m in await self.machines() if not m.deleting}

    async def words(self) -> list[str]:
        """What the machines say of themselves in `kubectl get`."""
        return sorted((each.get("status") or {}).get("printableStatus", "") for each in await self.documents())

    async def annotate(self, m: WarmVM, **faults: str) -> None:
        """The machine, and its guest where it has one at the moment."""
        annotations = {meta.SIM_PREFIX + key.replace("_", "-"): value for key, value in faults.items()}
        for resource in (VMS, VMIS):
            with suppress(NotFound):
                await self.api.patch(resource, m.namespace, m.name, {"metadata": {"annotations": annotations}})

    async def news(self) -> set[str]:
        """Reasons of the Events so far."""
        items, _ = await self.api.list(EVENTS, self.namespace)
        return {each["reason"] for each in items}

    async def hears(self, *reasons: str) -> None:
        """Waits for Events, which are written later than what they tell of, and not by whoever has been cut off."""

        async def missing() -> set[str]:
            return set(reasons) - await self.news()

        await until(missing, set())


@asynccontextmanager
async def namespace(kubeconfig: Path) -> AsyncIterator[Place]:
    """One of its own. Its machines go with it, before the block ends: others share the engine."""
    async with await Api.connect(kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        made = await api.create(NAMESPACES, {"metadata": {"generateName": "warm-"}})
        found = Place(api, made["metadata"]["name"])
        try:
            yield found
        finally:
            for resource in (WARM_POOLS, VMS):
                for each in (await api.list(resource, found.namespace))[0]:
                    try:
                        await api.delete(resource, found.namespace, each["metadata"]["name"])
                    except NotFound:
                        continue
            await api.delete(NAMESPACES, None, found.namespace)
