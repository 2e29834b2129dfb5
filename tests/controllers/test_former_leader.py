"""A replica that led and does not any more shows nothing of what it kept: only whoever is at work measures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.migrationpolicy.controller import build as policy
from controllers.pool.component import build as pool
from controllers.replicaset.controller import build as replicaset
from controllers.shared.component import Component, ControllerContext
from controllers.shared.series import Gauge
from controllers.warmpool_and_claim import build as warm
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.manifests.crd import crd
from poolhouse.runtime.api import Api
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.metrics import Metrics


class Silent:
    """An API server that says whose replica sets are, and nothing else, ever."""

    identity = "test"

    def __init__(self) -> None:
        self.metrics = Metrics()

    @property
    def urgent(self) -> Silent:
        return self

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def get(self, *_: Any) -> dict[str, Any]:
        return crd(REPLICA_SET)

    async def request(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    list = request

    async def pages(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


Build = Callable[[Api, EventRecorder, CollectorRegistry], Component]


@pytest.mark.parametrize(
    ("build", "prefix"),
    [
        pytest.param(pool, "vmpool_", id="pools"),
        pytest.param(replicaset, "vmirs_", id="replica sets"),
        pytest.param(policy, "migration_policy_", id="policies"),
        pytest.param(warm, "warmpool_", id="warm pools"),
    ],
)
async def test_a_former_leader_shows_none_of_its_gauges(build: Build, prefix: str) -> None:
    registry = CollectorRegistry()
    part = build(ControllerContext(api=Silent(), events=None, registry=registry))
    gauges = [each for each in _gauges(registry) if each.name.startswith(f"kubevirt_poolhouse_{prefix}")]
    assert gauges
    work = asyncio.create_task(part.work())
    for _ in range(20):  # every task of it has begun
        await asyncio.sleep(0)
    for gauge in gauges:
        gauge.labels(*("x" for _ in gauge.label_names)).set(1)
    assert not work.done()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert [s.name for gauge in gauges for metric in gauge.collect() for s in metric.samples] == []


def _gauges(registry: CollectorRegistry) -> list[Gauge]:
    """The registry gives samples to whoever asks, not what they are of."""
    return [each for each in registry._collector_to_names if isinstance(each, Gauge)]
