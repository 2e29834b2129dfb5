"""Sends ten dry runs of a pool a second to a cluster, to detect admission requests that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import yaml

from controllers.pool.pools import POOLS
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from tests.charts.helm import CHART
from tests.waiting import eventually

EXAMPLE = CHART.parent.parent / "examples" / "pool.yaml"
POOL = yaml.safe_load(EXAMPLE.read_text())
PAUSE_SECONDS = 0.1


@dataclass
class DryRuns:
    api: Api
    namespace: str
    accepted: int = 0
    refused: list[str] = field(default_factory=list)

    async def once(self) -> bool:
        metadata = {"name": f"dry-run-{self.accepted}", "namespace": self.namespace}
        try:
            await self.api.create(POOLS, {**POOL, "metadata": metadata}, dry_run=True)
        except ApiError as error:
            self.refused.append(str(error))
            return False
        self.accepted += 1
        return True

    async def wait_for(self, count: int) -> None:
        """Returns after `count` more accepted dry runs, or after a refused one."""
        wanted = self.accepted + count
        await eventually(lambda: self.refused or self.accepted >= wanted)

    async def run(self) -> None:
        while True:
            await self.once()
            await asyncio.sleep(PAUSE_SECONDS)


@asynccontextmanager
async def continuous_dry_runs(api: Api, namespace: str) -> AsyncIterator[DryRuns]:
    dry_runs = DryRuns(api, namespace)
    task = asyncio.create_task(dry_runs.run())
    try:
        yield dry_runs
    finally:
        task.cancel()
