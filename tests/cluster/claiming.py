"""Claims on a real API server: short words for what tests do with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controllers.claim.snapshot import CLAIMS
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.metrics import PREFIX
from poolhouse.runtime.resource import VMS
from tests.builders import manifest
from tests.cluster import warm_pools
from tests.cluster.pooling import PATIENCE_SECONDS, until
from tests.cluster.warm_pools import PoolNamespace, RunningControllers

Json = dict[str, Any]

OVER = ("Released", "Expired", "Failed")


@dataclass(frozen=True)
class Counter(PoolNamespace):
    """Where machines are given away: a namespace with pools and claims."""

    async def filled(self, replicas: int, name: str = "web", **spec: Any) -> Json:
        """A pool that has all its machines ready."""
        made = await self.pool(replicas, name, **spec)
        await until(lambda: self.ready(name), replicas)
        return made

    async def ready(self, name: str = "web") -> int:
        wanted = f"{meta.WARM_STATE}=Ready,{meta.WARM_POOL}={name}"
        items, _ = await self.api.list(VMS, self.namespace, label_selector=wanted)
        return len(items)

    async def claim(self, name: str, *, annotations: Json | None = None, **spec: Any) -> Json:
        body = manifest(CLAIMS, name, spec, self.namespace, annotations=annotations)
        return await self.api.create(CLAIMS, body)

    async def alter(self, name: str, **spec: Any) -> Json:
        return await self.api.patch(CLAIMS, self.namespace, name, {"spec": spec})

    async def unclaim(self, name: str) -> None:
        await self.api.delete(CLAIMS, self.namespace, name)

    async def claimed(self, name: str) -> Json:
        """A claim's status."""
        status: Json = (await self.api.get(CLAIMS, self.namespace, name)).get("status") or {}
        return status

    async def claims(self) -> dict[str, Json]:
        """Statuses by name."""
        items, _ = await self.api.list(CLAIMS, self.namespace)
        return {each["metadata"]["name"]: each.get("status") or {} for each in items}

    async def phase(self, name: str) -> str:
        return str((await self.claimed(name)).get("phase", ""))

    async def becomes(self, name: str, phase: str, seconds: float = PATIENCE_SECONDS) -> Json:
        """Waits for the phase; returns the status that has it."""
        status: Json = {}

        async def seen() -> Json:
            nonlocal status
            status = await self.claimed(name)
            return {"phase": phase} if status.get("phase") == phase else status

        await until(seen, {"phase": phase}, seconds)
        return status

    async def reason(self, name: str, condition: str = "Bound") -> str:
        conditions = (await self.claimed(name)).get("conditions") or ()
        return next((str(c["reason"]) for c in conditions if c["type"] == condition), "")

    async def vm(self, name: str) -> Json | None:
        with suppress(NotFound):
            return await self.api.get(VMS, self.namespace, name)
        return None

    async def gone(self, name: str) -> bool:
        return await self.vm(name) is None


@asynccontextmanager
async def counter(kubeconfig: Path) -> AsyncIterator[Counter]:
    """A namespace of its own."""
    async with warm_pools.namespace(kubeconfig) as place:
        yield Counter(place.api, place.namespace)


def counted(running: RunningControllers, name: str, **labels: str) -> float:
    """A metric's value, summed over the labels that are not named."""
    return sum(
        sample.value
        for metric in running.registry.collect()
        for sample in metric.samples
        if sample.name == f"{PREFIX}{name}" and labels.items() <= sample.labels.items()
    )


async def every(api: Api, namespace: str) -> list[Json]:
    """All claims of a namespace."""
    items, _ = await api.list(CLAIMS, namespace)
    return items
