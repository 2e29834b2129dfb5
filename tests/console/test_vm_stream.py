"""Streams between a browser and a VM, over real sockets, with an API server that does what KubeVirt may do."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from poolhouse.cli.cluster import Cluster
from poolhouse.console.app import Console, Frame
from poolhouse.console.cluster_state import ClusterState
from poolhouse.console.context import Context
from poolhouse.console.server import Guard
from poolhouse.console.vm_stream import CLOSED, IDLE_SECONDS, MAX_REASON_BYTES, connect, reason, sentence
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable, Unreachable
from tests.console.test_app import KUBECONFIG
from tests.waiting import PATIENCE_SECONDS

TOKEN = "s3cret"
CONSOLE = "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web-1/console"
FORBIDDEN = (
    'virtualmachineinstances.subresources.kubevirt.io "web-1" is forbidden: User "alice" cannot get resource '
    '"virtualmachineinstances/console" in API group "subresources.kubevirt.io" in the namespace "shop"'
)
STOPPED = "the console was stopped"
Guest = Callable[[web.WebSocketResponse], Awaitable[None]]


@pytest.mark.parametrize(
    ("stream", "error", "says"),
    [
        pytest.param(
            "console",
            Forbidden(FORBIDDEN, status=403),
            "You may not get virtualmachineinstances/console here.",
            id="no right",
        ),
        pytest.param("vnc", Invalid("VMI is not running", status=400), "The VM is not running.", id="not running"),
        pytest.param(
            "console", Conflict("...: VMI is in failed status", status=409), "The guest has failed.", id="failed"
        ),
        pytest.param(
            "vnc",
            Invalid("No graphics devices are present.", status=400),
            "The VM has no screen: its autoattachGraphicsDevice is false.",
            id="no display",
        ),
        pytest.param(
            "console",
            Invalid("No serial consoles are present.", status=400),
            "The VM has no serial console: its autoattachSerialConsole is false.",
            id="no serial console",
        ),
        pytest.param(
            "vnc",
            Unavailable("Active VNC connection. Request denied.", status=503),
            "Another user is connected to the screen.",
            id="somebody is connected",
        ),
        pytest.param(
            "vnc", NotFound('"web-1" not found', status=404), "The VM is not running, or it was deleted.", id="no VMI"
        ),
        pytest.param(
            "vnc", Unreachable("no answer before the deadline"), "no answer before the deadline", id="no answer"
        ),
    ],
)
def test_a_refusal_is_a_sentence(stream: str, error: ApiError, says: str) -> None:
    found = sentence(error, stream)
    assert found.startswith(says)
    assert reason(found) == found, "it fits the close of a websocket"


@pytest.mark.parametrize("text", ["a" * 200, "ä" * 200, "a" + "€" * 200])
def test_a_long_reason_is_cut_between_characters(text: str) -> None:
    cut = reason(text)
    assert MAX_REASON_BYTES - 3 <= len(cut.encode()) <= MAX_REASON_BYTES
    assert cut[-1] == "…"
    assert text.startswith(cut[:-1])


# Over sockets


@asynccontextmanager
async def api_server(
    tmp_path: Path, guest: Guest | None = None, refused: tuple[int, str] = (0, "")
) -> AsyncIterator[Api]:
    """The client of an API server whose one guest behaves so, or whose console is refused."""

    async def console(request: web.Request) -> web.StreamResponse:
        if guest is None:
            status = {"kind": "Status", "apiVersion": "v1", "code": refused[0], "message": refused[1]}
            return web.Response(status=refused[0], text=json.dumps(status), content_type="application/json")
        opened = web.WebSocketResponse(protocols=("plain.kubevirt.io",))
        await opened.prepare(request)
        await guest(opened)
        return opened

    app = web.Application()
    app.router.add_get(CONSOLE, console)
    async with TestServer(app) as server:
        kubeconfig = tmp_path / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": str(server.make_url("/")).rstrip("/")}}
        kubeconfig.write_text(yaml.safe_dump({**KUBECONFIG, "clusters": [cluster]}))
        async with await Api.connect(kubeconfig, user_agent="tests", timeout_seconds=PATIENCE_SECONDS) as api:
            yield api


@asynccontextmanager
async def serving(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(app, log_config=None, ws="wsproto", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve([listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def browser(
    api: Api, stop: asyncio.Event, idle: float = IDLE_SECONDS
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """The websocket of a browser that has connected to the console of web-1."""

    async def stopped() -> str:
        await stop.wait()
        return STOPPED

    async def stream(opened: WebSocket) -> None:
        await connect(opened, api, "console", ("shop", "web-1"), stopped, idle)

    app = Starlette(routes=[WebSocketRoute("/", stream)])
    with listening() as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        async with serving(app, listener), aiohttp.ClientSession() as session, session.ws_connect(url) as opened:
            yield opened


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


async def closed(opened: aiohttp.ClientWebSocketResponse) -> str:
    """The reason with which the websocket is closed."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        message = await opened.receive()
    assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, CLOSED)
    return str(message.extra)


async def echo(opened: web.WebSocketResponse) -> None:
    async for message in opened:
        await opened.send_bytes(b"guest: " + message.data)


async def leave(opened: web.WebSocketResponse) -> None:
    await opened.close()


async def test_bytes_go_both_ways_unchanged(tmp_path: Path) -> None:
    async with api_server(tmp_path, echo) as api, browser(api, asyncio.Event()) as opened:
        await opened.send_bytes(b"\x1b]0;\xff\x00\r")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await opened.receive_bytes() == b"guest: \x1b]0;\xff\x00\r"


async def test_a_stream_ends_with_its_vm(tmp_path: Path) -> None:
    async with api_server(tmp_path, leave) as api, browser(api, asyncio.Event()) as opened:
        assert "the VM stopped or moved, or another user connected" in await closed(opened)


async def test_an_idle_stream_ends(tmp_path: Path) -> None:
    async with api_server(tmp_path, echo) as api, browser(api, asyncio.Event(), idle=0.06) as opened:
        assert await closed(opened) == "Nothing was sent for 0.001 minutes."


async def test_a_stream_ends_with_the_console(tmp_path: Path) -> None:
    stop = asyncio.Event()
    async with api_server(tmp_path, echo) as api, browser(api, stop) as opened:
        stop.set()
        assert await closed(opened) == STOPPED


async def test_the_browser_reads_why_it_is_refused(tmp_path: Path) -> None:
    async with api_server(tmp_path, refused=(403, FORBIDDEN)) as api, browser(api, asyncio.Event()) as opened:
        assert await closed(opened) == "You may not get virtualmachineinstances/console here."


async def test_the_guest_sees_that_the_browser_leaves(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def guest(opened: web.WebSocketResponse) -> None:
        await echo(opened)
        left.set()

    async with api_server(tmp_path, guest) as api, browser(api, asyncio.Event()) as opened:
        await opened.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await left.wait()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        pytest.param(f"/{TOKEN}", {"Origin": "own"}, None, id="a page of the console"),
        pytest.param(f"/{TOKEN}", {}, 403, id="a program that sends no Origin"),
        pytest.param(f"/{TOKEN}", {"Origin": "http://evil.example"}, 403, id="another site that knows the token"),
        pytest.param(f"/{TOKEN}", {"Origin": "null"}, 403, id="a sandboxed page"),
        pytest.param(f"/{TOKEN}", {"Origin": "own", "Host": "evil.example"}, 403, id="a name that was rebound"),
        pytest.param("/wrong", {"Origin": "own"}, 404, id="another token"),
    ],
)
async def test_only_a_page_of_the_console_opens_a_websocket(
    tmp_path: Path, path: str, headers: dict[str, str], status: int | None
) -> None:
    with listening() as listener:
        port = listener.getsockname()[1]
        sent = {key: f"http://127.0.0.1:{port}" if value == "own" else value for key, value in headers.items()}
        async with api_server(tmp_path, echo) as api, aiohttp.ClientSession() as session:
            context = Context(ClusterState(api, None, "alice"), Cluster(tmp_path / "kubeconfig", "shop"))
            console = Console(context, Frame(f"/{TOKEN}", "cluster"))
            async with serving(Guard(console, port, TOKEN), listener):
                url = f"http://127.0.0.1:{port}{path}/stream/console/shop/web-1"
                try:
                    async with session.ws_connect(url, headers=sent) as opened:
                        await opened.send_bytes(b"x")
                        assert await opened.receive_bytes() == b"guest: x"
                        answered = None
                except aiohttp.WSServerHandshakeError as error:
                    answered = error.status
    assert answered == status
