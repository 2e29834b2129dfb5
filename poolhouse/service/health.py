"""The paths that every service has: /healthz, /readyz and /metrics."""

import asyncio
import hmac
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from poolhouse.service.callers import ABORT, address_of
from poolhouse.service.exposition import CONTENT_TYPE, PAGE_SECONDS, Exposition, Page
from poolhouse.service.json_api import HEADERS, bearer_token, problem_body

HEALTH_PATHS = ("/healthz", "/readyz", "/metrics")
PAGES_PER_ADDRESS = 4
"""A page of metrics may have megabytes, so an address gets the same one a few times only."""
PIECE_BYTES = 64 * 1024
"""what is encrypted and sent at once; then other requests are served"""
SEND_SECONDS = 10.0
"""A client that reads too slowly is disconnected, or it would keep a page that is long out of date."""

Missing = Callable[[], Mapping[str, str] | None]
"""Returns what is not ready and why, or None."""
Response = tuple[int, str, bytes]
"""status, content type and body"""


def health_app(missing: Missing, registry: CollectorRegistry, metrics_token: Path | None = None) -> Any:
    """An ASGI app with /healthz, /readyz and /metrics. `metrics_token` is a file with the bearer token that /metrics
    asks for, which is read for each request, because it may change."""
    metrics = _Metrics(Exposition(registry), metrics_token)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        if scope["method"] not in ("GET", "HEAD") and scope["path"] in HEALTH_PATHS:
            await _send(scope, send, (405, *_problem("this path accepts only GET")), [(b"allow", b"GET, HEAD")])
        elif scope["path"] == "/metrics":
            await metrics(scope, send)
        else:
            await _send(scope, send, health(scope["path"], missing, registry))

    return app


def health(path: str, missing: Missing, registry: CollectorRegistry) -> Response:
    """The responses of a service whose metrics are few."""
    if path == "/healthz":
        return 200, "text/plain", b"ok"
    if path == "/readyz":
        found = dict(missing() or {})
        body = json.dumps({"ready": not found, "missing": found}).encode()
        return 503 if found else 200, "application/json", body
    if path == "/metrics":
        return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
    return 404, *_problem("there is nothing at this path")


class _Metrics:
    def __init__(self, exposition: Exposition, token: Path | None) -> None:
        self._exposition, self._token = exposition, token
        self._page: Page | None = None
        self._served: Counter[str] = Counter()
        """how often addresses got the page"""

    async def __call__(self, scope: Any, send: Any) -> None:
        if self._token is not None and not _knows(self._token, bearer_token(scope["headers"])):
            problem = _problem("send the token of the metrics: Authorization: Bearer TOKEN")
            await _send(scope, send, (401, *problem), HEADERS[401])
            return
        page, address = await self._exposition.page(), address_of(scope)
        if page is not self._page:
            self._page = page
            self._served.clear()
        self._served[address] += 1
        if self._served[address] > PAGES_PER_ADDRESS:
            await asyncio.sleep(PAGE_SECONDS)  # a client that asks again at once costs nothing meanwhile
            problem = _problem("this address has the metrics of this second; try again in a second")
            await _send(scope, send, (429, *problem), HEADERS[429])
            return
        headers = [(b"vary", b"accept-encoding")]
        body = page.text
        if _accepts_gzip(scope["headers"]):
            body = page.compressed
            headers.append((b"content-encoding", b"gzip"))
        deadline = asyncio.get_running_loop().call_later(SEND_SECONDS, scope.get("extensions", {}).get(ABORT, _nothing))
        try:
            await _send(scope, send, (200, CONTENT_TYPE, body), headers)
        finally:
            deadline.cancel()


def _nothing() -> None:
    """Stands for the end of the connection in a server that is not ours."""


def _knows(file: Path, token: str) -> bool:
    """Whether the token is that of the file. Without a readable file, no token is."""
    try:
        known = file.read_bytes().strip()
    except OSError:
        return False
    return bool(known) and hmac.compare_digest(known, token.encode())


def _accepts_gzip(headers: list[tuple[bytes, bytes]]) -> bool:
    accepted = b",".join(value for name, value in headers if name == b"accept-encoding").decode("latin-1")
    refused = ("q=0", "q=0.0", "q=0.00", "q=0.000")
    options = (each.partition(";") for each in accepted.split(","))
    return any(name.strip() == "gzip" and quality.strip() not in refused for name, _, quality in options)


async def _send(scope: Any, send: Any, response: Response, further: list[tuple[bytes, bytes]] | None = None) -> None:
    status, content_type, body = response
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *(further or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    view = memoryview(b"" if scope["method"] == "HEAD" else body)
    pieces = [view[start : start + PIECE_BYTES] for start in range(0, len(view), PIECE_BYTES)] or [view]
    for number, piece in enumerate(pieces, start=1):
        await send({"type": "http.response.body", "body": bytes(piece), "more_body": number < len(pieces)})


def _problem(message: str) -> tuple[str, bytes]:
    """Content type and body of an error."""
    return "application/json", json.dumps(problem_body(message)).encode()
