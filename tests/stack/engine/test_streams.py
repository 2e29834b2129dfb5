"""Consoles and displays: what is refused, and the bytes between the websocket and the guest."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import socket
import tty
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import uvloop
from prometheus_client import CollectorRegistry

from poolhouse.runtime.errors import NotFound
from poolhouse.stack.engine.hypervisor import HypervisorRefused, Pair, Stream
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.qemu.streams import open_stream, stream_file
from poolhouse.stack.engine.simulated import SimulatedHypervisor
from poolhouse.stack.engine.streams import check_stream
from poolhouse.stack.engine.virt_api import BASE, VirtApi
from poolhouse.stack.engine.vm.subresources import StatusError
from tests.waiting import PATIENCE_SECONDS

SERIAL = "<serial type='pty'><source path='/dev/pts/7'/></serial>"
GRAPHICS = "<graphics type='vnc'><listen type='socket' socket='/run/vnc.sock'/></graphics>"


def vmi(phase: str = "Running", **devices: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ci", "name": "vm", "uid": "u", "creationTimestamp": "2026-03-01T12:00:00Z"},
        "spec": {"domain": {"devices": devices}},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("stream", "document", "refused"),
    [
        pytest.param("console", vmi(), None, id="a console"),
        pytest.param("vnc", vmi(), None, id="a display"),
        pytest.param("vnc", vmi(autoattachSerialConsole=False), None, id="a display without a console"),
        pytest.param("console", vmi("Scheduled"), (400, "VMI is not running"), id="not running"),
        pytest.param("vnc", vmi("Failed"), (400, "VMI is not running"), id="the display of a failed VMI"),
        pytest.param("console", vmi("Failed"), (409, "VMI is in failed status"), id="the console of a failed VMI"),
        pytest.param(
            "console", vmi(autoattachSerialConsole=False), (400, "No serial consoles are present"), id="no console"
        ),
        pytest.param(
            "vnc", vmi(autoattachGraphicsDevice=False), (400, "No graphics devices are present"), id="no display"
        ),
    ],
)
def test_what_kubevirt_refuses(stream: Stream, document: dict[str, Any], refused: tuple[int, str] | None) -> None:
    if refused is None:
        check_stream(stream, document)
        return
    with pytest.raises(StatusError, match=refused[1]) as error:
        check_stream(stream, document)
    assert error.value.code == refused[0]


def test_where_the_streams_of_a_domain_are() -> None:
    domain = f"<domain><devices>{SERIAL}{GRAPHICS}</devices></domain>"
    assert stream_file(domain, "console") == "/dev/pts/7"
    assert stream_file(domain, "vnc") == "/run/vnc.sock"
    with pytest.raises(HypervisorRefused, match="started without a vnc"):
        stream_file(f"<domain><devices>{SERIAL}</devices></domain>", "vnc")


async def _talk_over_a_terminal() -> tuple[bytes, bytes]:
    guest, terminal = pty.openpty()
    tty.setraw(terminal)
    try:
        async with open_stream(os.ttyname(terminal), "console") as (reader, writer):
            writer.write(b"root\r")
            await writer.drain()
            os.write(guest, b"second 1\r\nsecond 2\r\n")
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await asyncio.to_thread(os.read, guest, 100), await reader.readuntil(b"2\r\n")
    finally:
        os.close(guest)
        os.close(terminal)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_terminal_loses_no_bytes(run: Any) -> None:
    assert run(_talk_over_a_terminal()) == (b"root\r", b"second 1\r\nsecond 2\r\n")


class Guest(SimulatedHypervisor):
    """A guest that is the other end of a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.here, self._there = socket.socketpair()

    async def open_stream(self, vmi: VMI, stream: Stream) -> AbstractAsyncContextManager[Pair]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Pair]:
            reader, writer = await asyncio.open_connection(sock=self._there)
            yield reader, writer
            writer.close()

        return opened()


class FakeApi:
    async def get(self, resource: Any, namespace: str, name: str) -> dict[str, Any]:
        if name != "vm":
            raise NotFound("gone", status=404)
        return vmi()


async def connect(
    name: str,
    hypervisor: SimulatedHypervisor,
    *received: Any,
    peer: str = "poolhouse-front-proxy",
    verb: str = "console",
    kind: str = "websocket",
) -> Any:
    """The messages to the client of a websocket that sends these messages."""
    app = VirtApi(FakeApi(), hypervisor, lambda: None, CollectorRegistry())
    messages, sent = iter(({"type": "websocket.connect"}, *received)), list[Any]()

    async def receive() -> Any:
        for each in messages:
            return each
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    extensions = {"poolhouse.client-certificate": {"subject": ((("commonName", peer),),)}}
    path = f"{BASE}/namespaces/ci/virtualmachineinstances/{name}/{verb}"
    scope = {
        "type": kind,
        "method": "GET",
        "path": path,
        "subprotocols": ["plain.kubevirt.io"],
        "extensions": extensions,
    }
    await app(scope, receive, send)
    return sent


async def test_bytes_pass_in_both_directions_until_the_guest_ends() -> None:
    guest = Guest()
    guest.here.sendall(b"login: ")
    guest.here.shutdown(socket.SHUT_WR)
    sent = await connect("vm", guest, {"type": "websocket.receive", "bytes": b"root\r"})
    assert sent == [
        {"type": "websocket.accept", "subprotocol": "plain.kubevirt.io"},
        {"type": "websocket.send", "bytes": b"login: "},
        {"type": "websocket.close", "code": 1000},
    ]
    assert guest.here.recv(100) == b"root\r"
    guest.here.close()


@pytest.mark.parametrize(
    ("name", "peer", "code", "message"),
    [
        pytest.param("vm", "alice", 401, "only the API server may call this endpoint", id="not the API server"),
        pytest.param("other", "poolhouse-front-proxy", 404, '"other" not found', id="no such VMI"),
        pytest.param("vm", "poolhouse-front-proxy", 400, "a simulated VM has no console", id="a simulated VM"),
    ],
)
async def test_a_refusal_has_a_status(name: str, peer: str, code: int, message: str) -> None:
    start, body = await connect(name, SimulatedHypervisor(), peer=peer)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", code)
    assert message in json.loads(body["body"])["message"]


@pytest.mark.parametrize(
    ("hypervisor", "code", "message"),
    [
        pytest.param(SimulatedHypervisor(), 400, "a simulated VM has no console", id="a simulated VM"),
        pytest.param(Guest(), 400, "not using the websocket protocol", id="a VM with a console"),
    ],
)
async def test_a_request_without_a_websocket_gets_the_same_refusal(
    hypervisor: SimulatedHypervisor, code: int, message: str
) -> None:
    (start, body) = await connect("vm", hypervisor, kind="http")
    assert start["status"] == code
    assert message in json.loads(body["body"])["message"]


async def test_a_port_is_refused_with_the_reason() -> None:
    start, body = await connect("vm", SimulatedHypervisor(), verb="portforward/22/tcp")
    assert start["status"] == 501
    assert "has a network of its own" in json.loads(body["body"])["message"]
