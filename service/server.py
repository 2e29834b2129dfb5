"""Answering over HTTP: certificates that change without a restart, and an end that drops no request."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from service.protocol import IDLE_SECONDS, Guarded

if TYPE_CHECKING:
    from service.certificates import Validity

log = logging.getLogger(__name__)

DRAIN_SECONDS = 15.0
CERTIFICATE_SECONDS = 2.0
# Far above what an API server opens (it admits 600 requests at once), far below what our memory could not hold.
CONNECTIONS_LIMIT = 2000


class Certificate:
    """`tls.crt` and `tls.key` of a directory, as they are now.

    Every handshake is given the newest pair that was read whole. The pair is loaded into a context of its own: loading
    it into the one in use would, in the moment between the two files' renewal, leave a certificate without its key.
    """

    def __init__(
        self, directory: Path, clients: Path | None = None, shown: Callable[[Validity], None] = lambda window: None
    ) -> None:
        """`clients`: the authority whose clients are asked for a certificate. Who has none is let in as well. `shown`
        is told from when until when the certificate that is shown is valid."""
        self._shown = shown
        self._files = directory / "tls.crt", directory / "tls.key"
        self._clients = clients
        self._stamp: tuple[tuple[int, int, int], ...] = ()
        self._end = 0.0
        self._complaint = ""
        self._current = self._load()
        self.context = self._load()
        self.context.sni_callback = self._choose

    def renew(self) -> bool:
        """Reads the files if they changed; whether a new pair is served now. A pair that is not one is left alone, and
        so is one that has not begun, for as long as what is shown has not ended."""
        try:
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return False
            begins, now = _window(self._files[0]).start, time.time()
            if begins.timestamp() > now and self._end > now:
                raise ValueError(f"it begins at {begins:%Y-%m-%d %H:%M:%S} UTC")
            self._current = self._load()
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            if str(error) != self._complaint:  # once, not with every look
                log.warning("certificate: %s: %s; the old one stays", self._files[0], error)
            self._complaint = str(error)
            return False
        self._complaint = ""
        log.info("certificate: %s is new", self._files[0])
        return True

    async def follow(self, every_seconds: float = CERTIFICATE_SECONDS) -> None:
        while True:
            await asyncio.sleep(every_seconds)
            self.renew()

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called in every handshake, whether the client names a host or not."""
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        stamp = self._stamp_now()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(*self._files)
        if self._clients is not None:
            context.load_verify_locations(self._clients)
            context.verify_mode = ssl.CERT_OPTIONAL
        validity = _window(self._files[0])
        self._end = validity.end.timestamp()
        self._shown(validity)
        self._stamp = stamp  # taken before reading: what changes meanwhile is seen the next time
        return context

    def _stamp_now(self) -> tuple[tuple[int, int, int], ...]:
        files = (*self._files, self._clients) if self._clients is not None else self._files
        stats = [os.stat(file) for file in files]  # follows links: a mounted Secret is replaced by turning one
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


def _window(file: Path) -> Validity:
    """A chain begins with the server's own."""
    from service.certificates import read_validity

    return read_validity(file.read_bytes())


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    def part(self) -> None:
        """From now on each answer is the last of its connection. What is idle may be closed only after that: a request
        that is on its way to a connection that we close is lost, and Go's clients send no POST again."""
        last = (b"connection", b"close")
        self.config.encoded_headers.append(last)  # of which uvicorn makes the other list every second
        self.server_state.default_headers = [*self.server_state.default_headers, last]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are `stop`'s: uvicorn would take them from everything else that runs in the process."""
        yield


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
    shown: Callable[[Validity], None] = lambda window: None,
    http: type[asyncio.Protocol] = Guarded,
    **settings: Any,
) -> None:
    """Serves until it is cancelled; then it accepts for `linger_seconds` more (on a cluster, until nobody is sent here
    any longer), each answer the last of its connection; then nothing new, and what is under way is answered within
    `drain_seconds`.

    With `tls`, over HTTPS with that directory's `tls.crt` and `tls.key`. `started` is given the port. With
    `clients`, those whom that authority has certified are asked to show it. `settings` are uvicorn's.
    """
    certificate = Certificate(tls, clients, shown) if tls is not None else None
    listener = bind(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http=http,
        ws="none",
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
        timeout_keep_alive=round(IDLE_SECONDS),
        ssl_context_factory=(lambda config, default: certificate.context) if certificate else None,
        **{"limit_concurrency": CONNECTIONS_LIMIT} | settings,
    )
    server = _Server(config)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve([listener]), name=f"serve-{port}")
        following = group.create_task(certificate.follow(), name="certificate") if certificate else None
        try:
            if started is not None:
                await server.up.wait()
                started(listener.getsockname()[1])
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.part()
            if linger_seconds:
                await asyncio.sleep(linger_seconds)
            server.should_exit = True
            await serving
            raise
        finally:
            if following is not None:
                following.cancel()


def health_app(ready: Callable[[], Mapping[str, str] | None], registry: CollectorRegistry) -> Any:
    """An ASGI app with /healthz, /readyz and /metrics. `ready` returns what is missing and why, or None."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        status, kind, body = health(scope["path"], ready, registry)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return app


def health(
    path: str, ready: Callable[[], Mapping[str, str] | None], registry: CollectorRegistry
) -> tuple[int, str, bytes]:
    """(status, content type, body) for one of the three paths that every service has."""
    if path == "/healthz":
        return 200, "text/plain", b"ok"
    if path == "/readyz":
        missing = ready()
        body = json.dumps({"ready": not missing, "missing": dict(missing or {})}).encode()
        return 503 if missing else 200, "application/json", body
    if path == "/metrics":
        return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
    return 404, "text/plain", b"not found"
