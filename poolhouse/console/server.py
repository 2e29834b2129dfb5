"""Runs the console: the informers and an HTTP server on loopback, until it is cancelled or gets a signal."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from fastapi.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from poolhouse.cli.cluster import Cluster
from poolhouse.console import access, web
from poolhouse.console.app import Console, Frame
from poolhouse.console.cluster_state import connect, may_list_everywhere
from poolhouse.console.computations import Computations
from poolhouse.console.context import Context
from poolhouse.runtime.api import Api
from poolhouse.service.cpu_lane import SWITCH_SECONDS
from poolhouse.service.lifecycle import wait_for_stop_signal
from poolhouse.service.prometheus import Prometheus
from poolhouse.service.server import Server

SYNC_SECONDS = 15.0
STOP_SECONDS = 2
BUDGET_SECONDS = 60.0
"""how long a page may be computed on the machine of its user, who need not share it"""


async def serve(
    api: Api, cluster: Cluster, port: int, prometheus: Prometheus | None, started: Callable[[str], None]
) -> None:
    """Calls `started` with the address. Raises `OSError` if the port is in use, or the error of an API server that does
    not answer."""
    namespace = None if cluster.everywhere else cluster.requested_namespace
    if namespace is None and not await may_list_everywhere(api):
        namespace = cluster.namespace
    sys.setswitchinterval(SWITCH_SECONDS)
    state = await connect(api, namespace, cluster.namespace, Computations(BUDGET_SECONDS))
    listener = socket.create_server(("127.0.0.1", port))
    number, token = listener.getsockname()[1], access.new_token()
    frame = Frame(f"/{token}", urlsplit(api.host).netloc)
    console = Console(Context(state, cluster, metrics=prometheus), frame)
    config = uvicorn.Config(
        Guard(console, number, token),
        log_config=None,
        access_log=False,
        server_header=False,
        ws=WSProtocol,
        lifespan="off",
        http="h11",
        loop="asyncio",
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    server = Server(config)
    async with asyncio.TaskGroup() as group:
        informers = group.create_task(state.run(), name="informers")
        await state.synced(SYNC_SECONDS)
        serving = group.create_task(server.serve([listener]), name="server")
        stop = group.create_task(wait_for_stop_signal(), name="stop-signal")
        started(f"http://127.0.0.1:{number}{console.root}/")
        try:
            await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.should_exit = True
            console.end_streams()
            stop.cancel()
            informers.cancel()


class Guard:
    """Answers the requests of a browser that was given the address, and adds the headers that limit what a page may
    load."""

    def __init__(self, app: Any, port: int, token: str) -> None:
        self._app, self._port, self._token = app, port, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope.get("method", access.WEBSOCKET), scope["path"]
        refused = access.refusal(method, path, web.request_headers(scope), self._port, self._token)
        answer = PlainTextResponse(refused[1] + "\n", refused[0]) if refused is not None else self._app
        await answer(scope, receive, web.with_headers(send, access.headers_of(path)))
