"""Checks of the cached VMI, and probes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from controllers.warmpool.health import probe, vmi_health
from controllers.warmpool.warm_vm import WarmVM
from kinds.warmpool import HttpProbe, Readiness, TcpProbe
from tests.controllers.warmpool.builders import NOT_READY_NODE, a_vm, a_vmi

HEALTHY_VM = a_vm("a")
FAILING = replace(HEALTHY_VM, vmi=a_vmi(conditions=frozenset()))
UNREACHABLE = replace(HEALTHY_VM, node=NOT_READY_NODE)


@pytest.mark.parametrize(
    ("m", "readiness", "expected"),
    [
        pytest.param(HEALTHY_VM, Readiness(), ("Healthy", ""), id="Ready"),
        pytest.param(FAILING, Readiness(), ("Failed", "NotReady"), id="not Ready"),
        pytest.param(
            HEALTHY_VM, Readiness(guest_agent=True), ("Failed", "NotAgentConnected"), id="guest agent required"
        ),
        pytest.param(HEALTHY_VM, Readiness(conditions=("Warm",)), ("Failed", "NotWarm"), id="condition required"),
        pytest.param(UNREACHABLE, Readiness(), ("Unable", "NodeNotReady"), id="node not ready"),
        pytest.param(replace(HEALTHY_VM, vmi=None), Readiness(), ("Failed", "NotRunning"), id="no VMI"),
        pytest.param(
            replace(HEALTHY_VM, vmi=a_vmi(paused="PausedIOError")),
            Readiness(),
            ("Failed", "PausedIOError"),
            id="paused by an error",
        ),
    ],
)
def test_vmi_health(m: WarmVM, readiness: Readiness, expected: tuple[str, str]) -> None:
    found = vmi_health(m, readiness)
    assert (found.verdict, found.reason) == expected


CLOSED_PORT = 9
"""A port on which nothing listens. A port that was just released may be in use again."""


async def served(answer: bytes) -> tuple[asyncio.Server, int]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer:
            await reader.readline()
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "kind", "expected"),
    [
        pytest.param(b"", "tcp", "", id="open port"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "http", "", id="HTTP 200"),
        pytest.param(
            b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "http", "", id="HTTP redirect"
        ),
        pytest.param(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "http", "BadAnswer", id="HTTP 503"),
        pytest.param(b"what?\r\n\r\n", "http", "NoAnswer", id="no HTTP"),
    ],
)
async def test_probes(answer: bytes, kind: str, expected: str) -> None:
    server, port = await served(answer)
    async with server:
        readiness = Readiness(tcp=TcpProbe(port=port)) if kind == "tcp" else Readiness(http=HttpProbe(port=port))
        m = replace(HEALTHY_VM, vmi=a_vmi(addresses=("127.0.0.1",)))
        assert (await probe(m, readiness, 60.0)).reason == expected


async def test_a_closed_port_and_a_vm_without_an_address_fail() -> None:
    readiness = Readiness(tcp=TcpProbe(port=CLOSED_PORT))
    assert (await probe(replace(HEALTHY_VM, vmi=a_vmi(addresses=("127.0.0.1",))), readiness, 60.0)).reason == "NoAnswer"
    assert (await probe(replace(HEALTHY_VM, vmi=a_vmi(addresses=())), readiness, 60.0)).reason == "NoAddress"


async def test_a_probe_without_an_answer_times_out() -> None:
    silence = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silence.wait()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        readiness = Readiness(http=HttpProbe(port=server.sockets[0].getsockname()[1]))
        m = replace(HEALTHY_VM, vmi=a_vmi(addresses=("127.0.0.1",)))
        assert (await probe(m, readiness, 0.05)).message.endswith("no answer in 0.05 s")
        silence.set()
