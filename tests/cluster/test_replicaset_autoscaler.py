"""A real HorizontalPodAutoscaler scales a replica set, with simulated guests that start and stop in their own time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controllers.replicaset.observe import REPLICA_SETS
from poolhouse.runtime.resource import VMIS
from tests.cluster.pooling import engine, until
from tests.cluster.replicating import Place, controller, namespace
from tests.cluster.test_pool_autoscaler import AUTOSCALERS, Gauge, autoscaler, served
from tests.kinds.documents import changed

pytestmark = pytest.mark.slow


@pytest_asyncio.fixture
async def place(control_plane: Any) -> AsyncIterator[Place]:
    async with namespace(control_plane.kubeconfig) as found:
        yield found


async def test_an_autoscaler_grows_and_shrinks_a_set_and_nothing_flaps(
    control_plane: Any, place: Place, tmp_path: Path
) -> None:
    gauge = Gauge(40)
    scaled = changed(autoscaler(place.namespace), REPLICA_SETS.kind, "spec", "scaleTargetRef", "kind")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(served(place.api, place, gauge, tmp_path))  # type: ignore[arg-type]
        await stack.enter_async_context(engine(control_plane.kubeconfig, tmp_path))
        await stack.enter_async_context(controller(control_plane.kubeconfig))
        await place.make(1)
        await place.api.create(AUTOSCALERS, scaled)
        await until(lambda: running(place), 4, seconds=240)
        grown = await uids(place)
        # One that goes is replaced at once, and the autoscaler, which looks again meanwhile, has nothing to add.
        await place.api.delete(VMIS, place.namespace, min(await place.names()))
        await gauge.looks(2)

        async def replaced() -> tuple[int, int]:
            return await running(place), len(await uids(place) & grown)

        # While the VMI that goes is still there, the set may count it.
        await until(replaced, (4, 3))

        gauge.value = 20
        await until(lambda: running(place), 2, seconds=240)


async def uids(place: Place) -> set[str]:
    return {each["metadata"]["uid"] for each in (await place.instances()).values()}


async def running(place: Place) -> int:
    """How many, once as many are ready as there are."""
    replicas, ready = await place.numbers()
    return ready if await place.count() == replicas == ready else -1
