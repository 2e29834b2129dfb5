"""The REST service: bodies in, statuses and bodies out. What they say is the workers' business."""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from defaulter.contract import BODY_LIMIT_BYTES, DEFAULTS_PATH, Problem, Problems
from defaulter.metrics import Metrics
from defaulter.worker_pool import QueueFull, RequestFailed, WorkerPool
from defaulter.worker_protocol import Operation

BODY_SECONDS = 5.0
"""for a whole body to arrive: one that trickles in holds nobody up"""


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message


def create(workers: WorkerPool, metrics: Metrics) -> FastAPI:
    app = FastAPI(title="Poolhouse defaulter", docs_url=None, redoc_url=None)

    @app.post(DEFAULTS_PATH)
    async def defaults(request: Request) -> Response:
        loop = asyncio.get_running_loop()
        try:
            body = await _body(request)
            begun = loop.time()
            as_xml = request.headers.get("accept") == "application/xml"
            status, content = await workers.ask(Operation.DOMAIN if as_xml else Operation.DOCUMENT, body)
            metrics.duration.observe(loop.time() - begun)
            as_xml = as_xml and status == 200
            answer = Response(content, status, media_type="application/xml" if as_xml else "application/json")
        except _Refused as error:
            answer = _problem(error.status, error.message)
        except QueueFull:
            answer = _problem(429, "too many requests are waiting", retry_seconds=1)
        except RequestFailed as error:
            answer = _problem(503, str(error), retry_seconds=1)
        metrics.requests.labels(str(answer.status_code)).inc()
        return answer

    @app.get("/version")
    async def versions() -> Response:
        try:
            status, content = await workers.ask(Operation.VERSION)
        except (QueueFull, RequestFailed) as error:
            return _problem(503, str(error) or "too many requests are waiting", retry_seconds=1)
        if status != 200:
            return Response(content, status, media_type="application/json")
        return Response(json.dumps({"poolhouse": _own(), **json.loads(content)}), media_type="application/json")

    @app.get("/healthz")
    async def healthy() -> Response:
        return Response("ok", media_type="text/plain")

    @app.get("/readyz")
    async def ready() -> Response:
        """Ready means that libvirt has just defined a domain for us, however many others wait for that."""
        if workers.counts.ready == 0 and workers.counts.start_error:
            return Response(f"no worker starts: {workers.counts.start_error}", 503, media_type="text/plain")
        try:
            status, content = await workers.ask(Operation.PROBE, urgent=True)
        except (QueueFull, RequestFailed) as error:
            return Response(f"libvirt: {error or 'busy'}", 503, media_type="text/plain")
        return Response("ok" if status == 200 else content, status, media_type="text/plain")

    @app.get("/metrics")
    async def numbers() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app


async def _body(request: Request) -> bytes:
    """The body, refused as soon as it is known to be too large, or to be no JSON."""
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise _Refused(415, f"Content-Type must be application/json, not {ascii(kind[:60]) if kind else 'absent'}")
    declared = request.headers.get("content-length", "0")
    if declared.isascii() and declared.isdigit() and int(declared[:12]) > BODY_LIMIT_BYTES:
        raise _Refused(413, f"the body has {declared} bytes; at most {BODY_LIMIT_BYTES} are read")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise _Refused(415, "a compressed body is not read: send plain JSON")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > BODY_LIMIT_BYTES:
                    raise _Refused(413, f"the body has more than the {BODY_LIMIT_BYTES} bytes that are read")
                parts.append(part)
    except TimeoutError:
        raise _Refused(400, f"the body did not arrive within {BODY_SECONDS:g} s") from None
    return b"".join(parts)


def _problem(status: int, message: str, retry_seconds: int | None = None) -> Response:
    content = Problems(problems=(Problem(path="", message=message),)).model_dump_json()
    headers = {} if retry_seconds is None else {"Retry-After": str(retry_seconds)}
    return Response(content, status, media_type="application/json", headers=headers)


def _own() -> str:
    try:
        return version("poolhouse")
    except PackageNotFoundError:
        return "unknown"
