"""Answers admission for the API server, health checks and metrics, and passes queries to `webhook.queries`.

None of these needs FastAPI, whose middleware and routes would take more processor time than a review, and whose modules
take 12 MB (docs/performance.md).
"""

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from types import MappingProxyType
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from apimachinery.problem import Problem
from runtime.api import Api
from service.callers import address_of
from service.cpu_lane import BudgetSpent, CpuLane, LaneFull, compute
from service.request_body import BodyReader, RequestRefused, parse
from service.server import HEALTH_PATHS, health
from webhook import models
from webhook.admission import Admission
from webhook.callers import QUERY_HELD_BYTES, AdmissionBodies
from webhook.dryrun import DryRun
from webhook.explain import PolicyExplainer
from webhook.metrics import Metrics
from webhook.rate_limit import RateLimiter
from webhook.review import AdmissionRequest, AdmissionResponse, from_admission_review, to_admission_review

log = logging.getLogger(__name__)

Json = dict[str, Any]
Decide = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]
State = Callable[[], Mapping[str, str] | None]

QUERY_PATHS = ("/apis/vms/dryrun", "/apis/policies/explain", "/openapi.json", "/docs")
COSTLY_BODY_BYTES = 32 * 1024
COSTLY_OBJECTS = 400
"""A review of a usual VM or pool is smaller: it takes the event loop a few milliseconds."""
_NAMESPACE = re.compile(rb'"namespace":\s*"([a-z0-9.-]{1,253})"')


@dataclass
class WebhookParts:
    api: Api
    admission: Admission
    dry_run: DryRun
    explain: PolicyExplainer
    metrics: Metrics
    reviews: AdmissionBodies = field(default_factory=AdmissionBodies)
    bodies: BodyReader = field(
        default_factory=lambda: BodyReader(held_bytes=QUERY_HELD_BYTES, held_bytes_per_holder=QUERY_HELD_BYTES // 2)
    )
    """of queries. Admission has memory of its own, so that queries never refuse a review."""
    rate_limiter: RateLimiter = field(default_factory=lambda: RateLimiter(per_second=20, burst=60))
    address_limiter: RateLimiter = field(default_factory=lambda: RateLimiter(per_second=100, burst=300))
    """of all tokens of an address, because tokens are verified only after the body is read"""
    lane: CpuLane = field(default_factory=lambda: CpuLane(budget_seconds=1.0, max_per_tenant=32))
    """for the computations of costly requests. The largest VM within the bounds takes about half a second."""
    max_queries_in_flight: int = 32
    """Limit for all callers, because a caller with a new token in each request evades the rate limiter."""

    def lane_of(self, body: bytes, tenant: str) -> AbstractContextManager[None]:
        """Enters the lane with a costly body."""
        objects = body.count(b"{")
        costly = len(body) > COSTLY_BODY_BYTES or objects > COSTLY_OBJECTS
        return self.lane.enter(tenant, objects + len(body) // 100) if costly else nullcontext()


def namespace_in(body: bytes) -> str:
    """The namespace of a review that is not parsed yet. API servers write it before the object. A caller that writes
    another one only chooses whose share of the lane it uses, among those of its own address."""
    found = _NAMESPACE.search(body, 0, 4096)
    return found[1].decode() if found else ""


class Webhook:
    """An ASGI app. It loads the modules of queries in a thread with the first query."""

    def __init__(self, parts: WebhookParts, ready: State = lambda: None) -> None:
        self._parts, self._ready = parts, ready
        self._decide: dict[str, Decide] = {"/mutate": parts.admission.mutate, "/validate": self._validate}
        self._queries: asyncio.Task[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"a connection for {scope['type']} is not answered")
        path = scope["path"]
        if path in QUERY_PATHS:
            self._queries = self._queries or asyncio.create_task(asyncio.to_thread(load_queries, self._parts))
            await (await asyncio.shield(self._queries))(scope, receive, send)
            return
        try:
            response = self._health(scope) if path in HEALTH_PATHS else await self._respond(scope, receive)
        except Exception as error:
            response = failure_response(self._parts.metrics, path, error)
        await response(scope, receive, send)

    def _health(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        status, media_type, body = health(scope["path"], self._ready, self._parts.metrics.registry)
        return Response(body, status, media_type=media_type)

    async def _validate(self, request: AdmissionRequest) -> AdmissionResponse:
        return await compute(self._parts.admission.validate, request)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        if scope["path"] not in self._decide:
            raise HTTPException(404)
        if scope["method"] != "POST":
            raise HTTPException(405, headers={"Allow": "POST"})
        began, path, parts = perf_counter(), scope["path"], self._parts
        async with parts.reviews.read(scope, receive) as body:
            with parts.lane_of(body, f"{address_of(scope)} {namespace_in(body)}"):
                request = await compute(read_review, body)
                response = await self._decide[path](request)
                answer = await compute(render_review, request, response)
        parts.metrics.reviewed(path[1:], request, response, perf_counter() - began)
        return Response(answer, media_type="application/json")


def read_review(body: bytes) -> AdmissionRequest:
    return from_admission_review(parse(body))


def render_review(request: AdmissionRequest, response: AdmissionResponse) -> bytes:
    return orjson.dumps(to_admission_review(request, response))


def create_app(parts: WebhookParts, ready: State = lambda: None) -> ASGIApp:
    return Webhook(parts, ready)


def load_queries(parts: WebhookParts) -> ASGIApp:
    from webhook.queries import create_queries

    return create_queries(parts)


def error_response(
    status: int, *problems: Problem, wait: float | None = None, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """The response for an error. All errors have this form, even those for unknown paths."""
    headers = {**headers, **({"WWW-Authenticate": "Bearer"} if status == 401 else {})}
    if wait is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return JSONResponse(models.ErrorResponse(problems=problems).model_dump(mode="json"), status, headers)


def failure_response(metrics: Metrics, path: str, error: Exception) -> Response:
    """The response to a request whose handling has failed."""
    match error:
        case LaneFull():
            message = "too many large requests of this namespace or address are waiting; try again in a second"
            error = RequestRefused(429, message, retry_after_seconds=1)
        case BudgetSpent():
            error = RequestRefused(503, "the document needs too much processor time; make it smaller")
    match error:
        case RequestRefused():
            metrics.unreadable.labels(path, str(error.status)).inc()
            return error_response(error.status, Problem("", error.message), wait=error.retry_after_seconds)
        case HTTPException():
            return error_response(error.status_code, Problem("", error.detail), headers=error.headers or {})
    log.error("%s failed", path, exc_info=error)
    return error_response(500, Problem("", "internal error; the webhook's log has the details"))
