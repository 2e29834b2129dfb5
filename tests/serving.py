"""Serves the answers of a test over HTTP, on a free port of loopback."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

MAX_BYTES = 1 << 26
ANY_PATH = "/{path:.*}"


@asynccontextmanager
async def serving(*routes: web.RouteDef, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Yields the port. At the end, connections that are open are closed."""
    app = web.Application(client_max_size=MAX_BYTES)
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
