"""An HTTP server on uvicorn with reloaded certificates, deadlines for clients, and a graceful stop."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from poolhouse.service.callers import ABORT, CLIENT_CERTIFICATE, ConnectionLimit, address_of
from poolhouse.service.certwatcher import CertWatcher
from poolhouse.service.validity import Validity

DRAIN_SECONDS = 15.0
# More than the 600 requests that the API server sends at once. 2000 connections fit into memory.
MAX_CONNECTIONS = 2000
# Longer than the 90 s of clients in Go, which do not retry a POST if the server closes the connection.
IDLE_SECONDS = 120.0
# libuv accepts one connection for each listening socket in a turn of the event loop, and the same turn serves all
# requests that have arrived. With one socket, the last of 50 new connections waited for 120 to 230 ms.
LISTENING_SOCKETS = 4
HEAD_SECONDS = 5.0
MAX_HEAD_BYTES = 64 * 1024
# Longer than the deadline of `BodyReader`. It ends a body that is still being sent after the response.
BODY_SECONDS = 30.0


class DeadlineProtocol(HttpToolsProtocol):
    """Closes connections of slow clients (slow loris).

    Measured with uvicorn 0.54: without this class, half a request line keeps a connection open for more than an hour,
    and headers are kept up to any size. uvicorn's `timeout_keep_alive` starts only after a response, and
    `h11_max_incomplete_event_size` exists only for h11, which is slower.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes: int | None = None  # None unless the headers of a request are being read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline(IDLE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The headers of the request are too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._set_deadline(HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        self._set_deadline(BODY_SECONDS)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._set_deadline(None)
        super().on_message_complete()

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        # `abort`, because `close` waits until the client has read the response.
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


class ClientCertificateProtocol(DeadlineProtocol):
    """Adds the client's certificate to the ASGI scope, because uvicorn does not, and limits the connections of clients
    that have none."""

    def __init__(self, limit: ConnectionLimit, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limit = limit
        self._counted = ""
        self._certificate: Mapping[str, Any] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection: Any = transport.get_extra_info("ssl_object")
        self._certificate = (connection.getpeercert() if connection is not None else None) or {}
        if self._certificate:
            return
        address = address_of({"client": transport.get_extra_info("peername")})
        if self._limit.opened(address):
            self._counted = address
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted:
            self._limit.closed(self._counted)
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Ends the limits of this request: the protocol of websockets, which has its own, gets the connection."""
        self._set_deadline(None)
        if self._counted:
            self._limit.closed(self._counted)
            self._counted = ""
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        extensions: dict[str, Any] = {CLIENT_CERTIFICATE: self._certificate, ABORT: self.transport.abort}
        self.scope["extensions"] = extensions


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    def close_connections_after_response(self) -> None:
        """Closes each connection with its next response. If the server closed an idle connection at once, a request
        that is on its way would be lost."""
        header = (b"connection", b"close")
        self.config.encoded_headers.append(header)  # uvicorn adds these headers to the default headers every second
        self.server_state.default_headers = [*self.server_state.default_headers, header]

    async def drain(self, serving: asyncio.Task[None], linger_seconds: float) -> None:
        self.close_connections_after_response()
        if linger_seconds:
            await asyncio.sleep(linger_seconds)
        self.should_exit = True
        await serving

    async def abort(self, serving: asyncio.Task[None]) -> None:
        """Closes all connections, and waits until the application has ended their requests. It has no timers: a process
        without a processor can need seconds for one, and uvicorn's end has up to ten for each second of draining."""
        serving.cancel()
        await asyncio.wait({serving})
        for server in getattr(self, "servers", ()):  # there are none before the start
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        if tasks := list(self.server_state.tasks):
            await asyncio.wait(tasks)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Disables uvicorn's signal handlers, because `poolhouse.service.lifecycle` handles signals."""
        yield


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket with the address. `::` are all addresses of both IP versions, or of IPv4 on a machine without
    IPv6."""
    both = host == "::" and socket.has_dualstack_ipv6()
    if host == "::" and not both:
        host = "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if both:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


async def serve(
    app: Any,
    host: str,
    port: int,
    tls: Path | None = None,
    *,
    linger_seconds: float = 0.0,
    drain_seconds: float = DRAIN_SECONDS,
    started: Callable[[int], None] | None = None,
    clients: Path | None = None,
    connections: ConnectionLimit | None = None,
    on_certificate: Callable[[Validity], None] = lambda validity: None,
    **settings: Any,
) -> None:
    """Serves until it is cancelled, over HTTPS if `tls` is a directory with `tls.crt` and `tls.key`.

    After the cancellation the server accepts requests for `linger_seconds`, until the cluster routes none to it, and
    closes each connection with its next response. Then the server accepts no connection and finishes the requests in
    progress within `drain_seconds`. With `drain_seconds=0` it closes all connections at once, and `app` must end the
    requests of clients that are gone. `started` is called with the port. `clients` is the CA of client certificates.
    `connections` limits those of clients without a certificate. `settings` are settings of uvicorn.
    """
    watcher = CertWatcher(tls, clients, on_certificate) if tls is not None else None
    listener = bind(host, port)
    options: dict[str, Any] = {"limit_concurrency": MAX_CONNECTIONS, "ws": "none", **settings}
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # no proxy stands between a client and the service
        http=partial(ClientCertificateProtocol, connections or ConnectionLimit(MAX_CONNECTIONS, MAX_CONNECTIONS)),  # type: ignore[arg-type]
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
        timeout_keep_alive=round(IDLE_SECONDS),
        ssl_context_factory=(lambda config, default: watcher.context) if watcher else None,
        **options,
    )
    server = Server(config)
    async with asyncio.TaskGroup() as group:
        listeners = [listener, *(listener.dup() for _ in range(LISTENING_SOCKETS - 1))]
        serving = group.create_task(server.serve(listeners), name=f"serve-{port}")
        watching = group.create_task(watcher.run(), name="certwatcher") if watcher else None
        try:
            if started is not None:
                await server.up.wait()
                started(listener.getsockname()[1])
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            if drain_seconds:
                await server.drain(serving, linger_seconds)
            else:
                await server.abort(serving)
            raise
        finally:
            if watching is not None:
                watching.cancel()
