"""The HTTP proxy to agents in guests, with the client of the controllers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controllers.warmpool.agent import AgentEndpoint, NetworkAgentClient
from poolhouse.stack.engine.agents.proxy import OpenGuest, Streams, parse_connect, serve_proxy
from tests.controllers.warmpool.agents import agent

GUEST = "198.18.0.7"


@asynccontextmanager
async def proxy(open_guest: OpenGuest) -> AsyncIterator[int]:
    free = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port: int = free.sockets[0].getsockname()[1]
    free.close()
    await free.wait_closed()
    task = asyncio.ensure_future(serve_proxy("127.0.0.1", port, open_guest))
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.01)
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_agent_answers_at_the_address_of_its_guest() -> None:
    async with agent() as found:
        asked: list[tuple[str, int]] = []

        async def open_guest(address: str, port: int) -> Streams:
            asked.append((address, port))
            return await asyncio.open_connection("127.0.0.1", found.port)

        async with proxy(open_guest) as port:
            client = NetworkAgentClient(f"127.0.0.1:{port}")
            assert (await client.health(AgentEndpoint(GUEST, 8200, grpc=True), 60)).verdict == "Healthy"
        assert set(asked) == {(GUEST, 8200)}


async def test_a_guest_that_does_not_answer_fails_at_once() -> None:
    async def open_guest(address: str, port: int) -> Streams:
        raise ConnectionRefusedError("no guest")

    async with proxy(open_guest) as port:
        health = await NetworkAgentClient(f"127.0.0.1:{port}").health(AgentEndpoint(GUEST, 8200, grpc=True), 60)
        assert (health.verdict, health.reason) == ("Failed", "NoAnswer")


@pytest.mark.parametrize(
    ("head", "target"),
    [
        (b"CONNECT 198.18.0.7:8200 HTTP/1.1\r\nHost: x\r\n\r\n", ("198.18.0.7", 8200)),
        (b"CONNECT [fd00::1]:8200 HTTP/1.0\r\n\r\n", ("fd00::1", 8200)),
        (b"GET http://198.18.0.7:8200/ HTTP/1.1\r\n\r\n", None),
        (b"CONNECT 198.18.0.7 HTTP/1.1\r\n\r\n", None),
        (b"CONNECT 198.18.0.7:99999 HTTP/1.1\r\n\r\n", None),
        (b"\r\n\r\n", None),
    ],
)
def test_only_connect_is_answered(head: bytes, target: tuple[str, int] | None) -> None:
    assert parse_connect(head) == target
