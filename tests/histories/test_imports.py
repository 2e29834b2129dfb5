"""Imports of KubeVirt's pools that are interrupted at any write, in virtual time. tests/cluster/test_import.py has a
real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TypeVar

from tests.cluster.importing import PREFIX, continued, kubevirt_at_work, taken_back, there_and_back
from tests.cluster.pooling import Place
from tests.histories.client import Network
from tests.histories.pools import build
from tests.histories.world import Process, World
from tests.virtual_loop import VirtualLoop

T = TypeVar("T")
WRITES = range(16)
"""More than an import of the pool of these tests needs."""
BACK_WRITES = range(24)
"""More than the way back of the pool of these tests needs."""


def in_virtual_time(scene: Callable[[Place], Awaitable[T]]) -> T:
    """The result of a scene with KubeVirt's controller and that of pools."""

    async def played() -> T:
        world = World(Random("import"))
        place = Place(world.api("users"), f"{PREFIX}-here")
        async with kubevirt_at_work(world.api("kubevirt")):
            process = Process.start(world, build, Network(world.random))
            found = await scene(place)
            await process.kill()
        assert world.violations == []
        return found

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        return runner.run(played())


def test_an_import_that_is_interrupted_at_any_write_continues() -> None:
    found = [in_virtual_time(partial(continued, write=write)) for write in WRITES]
    assert found == sorted(found, reverse=True), "all writes up to the last were interrupted"
    assert 10 < found.count(True) < len(WRITES)


def test_an_import_that_is_interrupted_is_taken_back() -> None:
    found = [in_virtual_time(partial(taken_back, write=write)) for write in WRITES[1:]]
    assert found.count(True) > 8


def test_a_way_back_that_is_interrupted_at_any_write_continues() -> None:
    found = in_virtual_time(partial(there_and_back, name="web", writes=BACK_WRITES))
    assert found == sorted(found, reverse=True), "all writes up to the last were interrupted"
    assert 12 < found.count(True) < len(BACK_WRITES)
