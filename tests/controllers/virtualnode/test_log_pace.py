"""Logs of Pods take only a part of the event loop, whatever agents send and users read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from controllers.shared.pace import Pace
from controllers.virtualnode.logs import STREAMS_PER_NAMESPACE, LogReader, LogStreams, NoLogs
from poolhouse.runtime.api import Api
from tests.controllers.virtualnode.test_endpoint import CLAIM, Agent, Cluster


async def test_a_stream_waits_after_each_message() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    agent = Agent(b"line", b"x" * 1000)
    cluster = cast(Api, Cluster())
    pace = Pace(0.1, 1000, sleep)
    reader = LogReader(cluster, "poolhouse", lambda uid: [CLAIM], agent.endpoint, agent.read, pace=pace)
    assert [len(each) async for each in reader.read("n", "app", "main", {})] == [4, 1000]
    assert slept == [0.1, 1.0]


async def test_streams_of_a_namespace_share_a_slot_and_leave_one_to_others() -> None:
    sleeping, woken = list[str](), asyncio.Event()

    async def sleep(seconds: float) -> None:
        sleeping.append(f"{seconds:.0f} s")
        await woken.wait()

    pace = Pace(0.1, 1, sleep)
    async with asyncio.TaskGroup() as group:
        for namespace, seconds in (("flood", 1), ("flood", 2), ("flood", 3), ("quiet", 4)):
            group.create_task(pace.wait(namespace, seconds))
        for _ in range(9):
            await asyncio.sleep(0)
        first = [*sleeping]
        woken.set()
    assert first == ["1 s", "4 s"]
    assert len(sleeping) == 4


async def endless(endpoint: Any, request: Any) -> AsyncIterator[bytes]:
    while True:
        yield b"line"


async def test_a_namespace_has_so_many_streams() -> None:
    streams, agent = LogStreams(), Agent()
    reader = LogReader(cast(Api, Cluster()), "poolhouse", lambda uid: [CLAIM], agent.endpoint, endless, streams)
    with ExitStack() as open_streams:
        for _ in range(STREAMS_PER_NAMESPACE):
            open_streams.enter_context(streams.open("n"))
        with pytest.raises(NoLogs, match="end one of them"):
            await anext(reader.read("n", "app", "main", {}))
        with streams.open("others"):
            pass
    stream = reader.read("n", "app", "main", {})
    assert await anext(stream) == b"line"
    await stream.aclose()
