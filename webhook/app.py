"""The routes: bytes in, what was decided, bytes out."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import Any, Protocol

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import JSONResponse, Response

from apimachinery.problem import Problem
from service.server import health
from webhook.admission import Admission
from webhook.body import Unreadable
from webhook.dryrun import Answer, DryRun, Operation
from webhook.explain import PolicyExplainer
from webhook.intake import Intake
from webhook.metrics import Metrics
from webhook.rate_limit import RateLimiter
from webhook.review import AdmissionRequest, AdmissionResponse, from_admission_review, to_admission_review

log = logging.getLogger(__name__)

Json = dict[str, Any]


class QueryAnswer(Protocol):
    """An answer to a person's question, as `dryrun.Answer`."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> Json: ...
    @property
    def retry_after_seconds(self) -> float | None: ...


Question = Callable[[Http, Json, str], Awaitable[QueryAnswer]]
"""(request, its document, the caller's token)"""
Review = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]


@dataclass
class WebhookParts:
    """Everything that the routes need."""

    admission: Admission
    dry_run: DryRun
    explain: PolicyExplainer
    metrics: Metrics
    intake: Intake = field(default_factory=Intake)
    callers: RateLimiter = field(default_factory=lambda: RateLimiter(per_second=20, burst=60))
    questions_at_once: int = 32
    """whoever makes up a token for each request is never the same caller: together they cost so much and no more"""


def create_app(service: WebhookParts, ready: Callable[[], Mapping[str, str] | None] = lambda: None) -> FastAPI:
    api = FastAPI(title="Poolhouse admission", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    routes = Routes(service)

    async def validate(request: AdmissionRequest) -> AdmissionResponse:
        return service.admission.validate(request)

    async def dry_run(http: Http, document: Json, token: str) -> Answer:
        return await service.dry_run.answer(document, token, _operation(http))

    async def explain(http: Http, document: Json, token: str) -> QueryAnswer:
        return await service.explain.answer(document, token)

    # Plain routes: what a request is, we know better than a signature can say, and each one saved is a VM sooner.
    api.add_route("/mutate", routes.review("mutate", service.admission.mutate), methods=["POST"])
    api.add_route("/validate", routes.review("validate", validate), methods=["POST"])
    api.add_route("/apis/vms/dryrun", routes.asked("dryrun", dry_run), methods=["POST"])
    api.add_route("/apis/policies/explain", routes.asked("explain", explain), methods=["POST"])

    async def state(request: Http) -> Response:
        status, kind, body = health(request.url.path, ready, service.metrics.registry)
        return Response(body, status, media_type=kind)

    for path in ("/healthz", "/readyz", "/metrics"):
        api.add_route(path, state, methods=["GET"])
    api.add_exception_handler(HTTPException, _http_error)
    api.add_exception_handler(Exception, _failed)
    return api


class Routes:
    def __init__(self, service: WebhookParts) -> None:
        self._service = service
        self._under_way = 0

    def review(self, entry: str, decide: Review) -> Callable[[Http], Awaitable[Response]]:
        metrics = self._service.metrics

        async def endpoint(http: Http) -> Response:
            began = perf_counter()
            try:
                async with self._service.intake.document(http) as document:
                    request = from_admission_review(document)
                    verdict = await decide(request)
                    response = JSONResponse(to_admission_review(request, verdict))
            except Unreadable as error:
                return self._unreadable(http, error)
            metrics.reviewed(entry, request, verdict, perf_counter() - began)
            return response

        return endpoint

    def asked(self, entry: str, answer: Question) -> Callable[[Http], Awaitable[Response]]:
        """A route for people and their programs: each with a Kubernetes token, and not too often."""
        seconds = self._service.metrics.questions

        async def endpoint(http: Http) -> Response:
            began = perf_counter()
            try:
                token = _bearer(http.headers.get("authorization", ""))
                with self._turn(token):
                    async with self._service.intake.document(http) as document:
                        told = await answer(http, document, token)
            except Unreadable as error:
                return self._unreadable(http, error)
            seconds.labels(entry, str(told.status)).observe(perf_counter() - began)
            return _told(told)

        return endpoint

    @contextmanager
    def _turn(self, token: str) -> Iterator[None]:
        wait = self._service.callers.wait_seconds(hashlib.sha256(token.encode()).hexdigest(), monotonic())
        if not wait and self._under_way >= self._service.questions_at_once:
            wait = 1.0
        if wait:
            raise Unreadable(429, f"too many requests; try again in {math.ceil(wait)} s", retry_after_seconds=wait)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def _unreadable(self, http: Http, error: Unreadable) -> Response:
        self._service.metrics.unreadable.labels(http.url.path, str(error.status)).inc()
        return _told(Answer(error.status, (Problem("", error.message),), retry_after_seconds=error.retry_after_seconds))


def _told(told: QueryAnswer) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if told.status == 401 else {}
    if told.retry_after_seconds is not None:
        headers["Retry-After"] = str(max(1, math.ceil(told.retry_after_seconds)))
    return JSONResponse(told.body, told.status, headers)


async def _http_error(http: Http, error: Exception) -> Response:
    """What has no route, in the form that every other refusal has."""
    assert isinstance(error, HTTPException)
    return _told(Answer(error.status_code, (Problem("", error.detail),)))


async def _failed(http: Http, error: Exception) -> Response:
    log.error("%s failed", http.url.path, exc_info=error)
    return _told(Answer(500, (Problem("", "this is a mistake of ours; its log says more"),)))


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii() or not token.isprintable():
        raise Unreadable(401, "send your Kubernetes token: Authorization: Bearer TOKEN")
    return token


def _operation(http: Http) -> Operation:
    match http.query_params.get("operation", "create").lower():
        case "create":
            return "create"
        case "update":
            return "update"
        case _:
            raise Unreadable(400, "operation must be create or update")
