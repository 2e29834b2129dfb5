"""Runs the console: the informers and an HTTP server on loopback, until it is cancelled or gets a signal."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from poolhouse.cli.cluster import Cluster
from poolhouse.console import access
from poolhouse.console.app import Console
from poolhouse.console.cluster_state import connect
from poolhouse.console.pages import Context
from poolhouse.runtime.api import Api
from poolhouse.service.lifecycle import wait_for_stop_signal
from poolhouse.service.prometheus import Prometheus

SYNC_SECONDS = 15.0
STOP_SECONDS = 2


async def serve(
    api: Api, cluster: Cluster, port: int, prometheus: Prometheus | None, started: Callable[[str], None]
) -> None:
    """Calls `started` with the address. Raises `OSError` if the port is in use, or the error of an API server that does
    not answer."""
    fallback = cluster.namespace
    state = await connect(api, None if cluster.everywhere else cluster.requested_namespace, fallback)
    listener = socket.create_server(("127.0.0.1", port))
    number, token = listener.getsockname()[1], access.new_token()
    console = Console(Context(state, cluster, prometheus=prometheus), number, token, urlsplit(api.host).netloc)
    config = uvicorn.Config(
        console,
        log_config=None,
        access_log=False,
        server_header=False,
        ws=WSProtocol,
        lifespan="off",
        http="h11",
        loop="asyncio",
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    server = _Server(config)
    async with asyncio.TaskGroup() as group:
        informers = group.create_task(state.run(), name="informers")
        await state.synced(SYNC_SECONDS)
        serving = group.create_task(server.serve([listener]), name="server")
        stop = group.create_task(wait_for_stop_signal(), name="stop-signal")
        started(f"http://127.0.0.1:{number}{console.root}/")
        try:
            await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            console.stop()
            server.should_exit = True
            stop.cancel()
            informers.cancel()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to `wait_for_stop_signal`."""
        yield
