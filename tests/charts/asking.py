"""Somebody who asks all the time, to see whether anybody is ever refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import yaml

from runtime.api import Api
from runtime.errors import ApiError
from tests.charts.helm import CHART
from tests.cluster.pooling import POOLS
from tests.waiting import eventually

EXAMPLE = CHART.parent.parent / "examples" / "pool.yaml"


@dataclass
class Asked:
    """Pools that the webhook must find good, asked about one after the other."""

    api: Api
    namespace: str
    answered: int = 0
    refused: list[str] = field(default_factory=list)

    async def once(self) -> bool:
        pool = yaml.safe_load(EXAMPLE.read_text())
        metadata = {"name": f"asked-{self.answered}", "namespace": self.namespace}
        try:
            await self.api.create(POOLS, {**pool, "metadata": metadata}, dry_run=True)
        except ApiError as error:
            self.refused.append(str(error))
            return False
        self.answered += 1
        return True

    async def more(self, count: int) -> None:
        """Returns when so many more have been answered, or when one was refused."""
        wanted = self.answered + count
        await eventually(lambda: self.refused or self.answered >= wanted)

    async def run(self) -> None:
        while True:
            await self.once()
            await asyncio.sleep(0.05)


@asynccontextmanager
async def asking(api: Api, namespace: str) -> AsyncIterator[Asked]:
    """While the block lasts."""
    asked = Asked(api, namespace)
    task = asyncio.create_task(asked.run())
    try:
        yield asked
    finally:
        task.cancel()
