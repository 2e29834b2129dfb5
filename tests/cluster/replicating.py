"""A replica set controller in the test's own process, and what tests ask of the API server about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from controllers.replicaset.controller import build
from controllers.replicaset.observe import REPLICA_SETS
from controllers.shared.component import ControllerContext
from poolhouse.runtime.api import Api
from poolhouse.runtime.events import EVENTS, EventRecorder
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.resource import NAMESPACES, VMIS, Resource
from tests.builders import manifest, vmi_spec
from tests.cluster.pooling import Running, background, clear, until

Json = dict[str, Any]

LABELS = {"app": "web"}
V1ALPHA2 = Resource("kubevirt.io", "v1alpha2", REPLICA_SETS.plural, REPLICA_SETS.kind)


@asynccontextmanager
async def controller(
    kubeconfig: Path, *, burst: int = 250, defaulter: Any = None, poll_seconds: float = 30.0
) -> AsyncIterator[Running]:
    """On leaving, it is cut off wherever it is, as when it is killed: calls on their way may or may not be done."""
    registry = CollectorRegistry()
    async with await Api.connect(
        kubeconfig, user_agent="test-set", max_connections=32, metrics=Metrics(registry)
    ) as api:
        events = EventRecorder(api, "poolhouse.dev/controllers")
        context = ControllerContext(api=api, events=events, registry=registry, defaulter=defaulter, burst=burst)
        part = build(context, poll_seconds=poll_seconds)
        async with background(events.run(), part.work()):
            yield Running(registry)


def the_set(namespace: str, replicas: int, name: str = "web", **spec: Any) -> Json:
    template = {"metadata": {"labels": LABELS}, "spec": vmi_spec({"root": {"containerDisk": {"image": "tiny"}}})}
    spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template, **spec}
    return manifest(REPLICA_SETS, name, spec, namespace)


@dataclass(frozen=True)
class Place:
    """A namespace, and short words for what tests do in it."""

    api: Api
    namespace: str

    async def make(self, replicas: int, name: str = "web", **spec: Any) -> Json:
        return await self.api.create(REPLICA_SETS, the_set(self.namespace, replicas, name, **spec))

    async def change(self, name: str = "web", **spec: Any) -> None:
        await self.api.patch(REPLICA_SETS, self.namespace, name, {"spec": spec})

    async def seen(self, name: str = "web") -> Json:
        return await self.api.get(REPLICA_SETS, self.namespace, name)

    async def numbers(self, name: str = "web") -> tuple[int, int]:
        status = (await self.seen(name)).get("status") or {}
        return status.get("replicas", 0), status.get("readyReplicas", 0)

    async def condition(self, kind: str, name: str = "web") -> tuple[str, str] | None:
        """Its status and reason."""
        found = ((await self.seen(name)).get("status") or {}).get("conditions") or []
        return next(((c["status"], c["reason"]) for c in found if c["type"] == kind), None)

    async def message(self, kind: str) -> str:
        found = ((await self.seen()).get("status") or {}).get("conditions") or []
        return next((c["message"] for c in found if c["type"] == kind), "")

    async def instances(self) -> dict[str, Json]:
        items, _ = await self.api.list(VMIS, self.namespace)
        return {each["metadata"]["name"]: each for each in items}

    async def count(self) -> int:
        return len(await self.instances())

    async def names(self) -> set[str]:
        return set(await self.instances())

    async def hears(self, *reasons: str) -> None:
        """Waits for events about the set. On a busy API server there are others too."""

        async def missing() -> set[str]:
            items, _ = await self.api.list(EVENTS, self.namespace, field_selector="regarding.name=web")
            return set(reasons) - {each["reason"] for each in items}

        await until(missing, set())

    async def vmi(self, name: str, **metadata: Any) -> Json:
        """One that somebody else makes."""
        spec = the_set(self.namespace, 1)["spec"]["template"]["spec"]
        body = manifest(VMIS, name, spec, self.namespace, **{"labels": LABELS, **metadata})
        return await self.api.create(VMIS, body)

    async def relabel(self, name: str, **labels: str | None) -> None:
        await self.api.patch(VMIS, self.namespace, name, {"metadata": {"labels": labels}})

    async def runs(self, *names: str, **status: Any) -> None:
        """As KubeVirt would say it; a VMI has no status subresource."""
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for name in names:
            await self.api.patch(VMIS, self.namespace, name, {"status": {**ready, **status}})

    async def ends(self, *names: str, ran: float = 600.0) -> None:
        """After it ran for so many seconds."""
        now = datetime.now(UTC)
        reached = [("Running", now - timedelta(seconds=ran)), ("Failed", now)]
        stamps = [{"phase": p, "phaseTransitionTimestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}"} for p, at in reached]
        await self.runs(*names, phase="Failed", conditions=[], phaseTransitionTimestamps=stamps)

    def owner(self, found: Json) -> str | None:
        """UID of its controller."""
        owners = found["metadata"].get("ownerReferences") or []
        return next((each["uid"] for each in owners if each.get("controller")), None)


@asynccontextmanager
async def namespace(kubeconfig: Path) -> AsyncIterator[Place]:
    """One of its own, until the block ends."""
    async with await Api.connect(kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        made = await api.create(NAMESPACES, {"metadata": {"generateName": "set-"}})
        found = Place(api, made["metadata"]["name"])
        yield found
        await clear(api, found.namespace)
