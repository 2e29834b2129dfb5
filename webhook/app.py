"""The HTTP routes: admission for the API server, and queries for users and programs.

`Reviews` answers `/mutate` and `/validate` without FastAPI, whose middleware and routes would take more processor time
than the review (docs/performance.md). The other routes have typed requests and responses, and an OpenAPI document at
`/openapi.json` and `/docs`.
"""

import hashlib
import logging
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from time import monotonic, perf_counter
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, FastAPI, Query, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, BeforeValidator
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from apimachinery.problem import Problem
from kinds import KINDS
from runtime import access_review
from runtime.api import Api
from runtime.errors import ApiError
from service import api_docs
from service.callers import address_of
from service.cpu_lane import BudgetSpent, CpuLane, LaneFull, compute
from service.request_body import BodyReader, RequestRefused, parse
from service.server import health
from webhook import models
from webhook.admission import Admission
from webhook.api_errors import query_error
from webhook.callers import QUERY_HELD_BYTES, AdmissionBodies
from webhook.dryrun import DryRun, Operation
from webhook.explain import PolicyExplainer, parse_question
from webhook.metrics import Metrics
from webhook.rate_limit import RateLimiter
from webhook.review import AdmissionRequest, AdmissionResponse, from_admission_review, to_admission_review

log = logging.getLogger(__name__)

Json = dict[str, Any]
Decide = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]

COSTLY_BODY_BYTES = 32 * 1024
COSTLY_OBJECTS = 400
"""A review of a usual VM or pool is smaller: it takes the event loop a few milliseconds."""
_NAMESPACE = re.compile(rb'"namespace":\s*"([a-z0-9.-]{1,253})"')

BEARER = HTTPBearer(
    auto_error=False, scheme_name="token", description="A token of the cluster, as the API server accepts it."
)
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": models.ErrorResponse, "description": "The request was refused; the problems say why."},
    501: {"model": models.ErrorResponse, "description": "The defaulter cannot decide this object."},
    503: {"model": models.ErrorResponse, "description": "A service that the answer needs gave none. See Retry-After."},
}
CONTROLLERS = [{"url": "https://poolhouse-controllers.poolhouse-system.svc", "description": "The controllers"}]


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


@dataclass(frozen=True)
class Document:
    """The JSON object in a query's body, and the caller's token."""

    json: Json
    token: str


class InFlightLimit:
    """Limits the rate of queries of each caller, and the number of queries in flight."""

    def __init__(self, parts: WebhookParts) -> None:
        self._parts = parts
        self._in_flight = 0

    @contextmanager
    def slot(self, token: str, address: str) -> Iterator[None]:
        caller, now = hashlib.sha256(token.encode()).hexdigest(), monotonic()
        wait = self._parts.address_limiter.wait_seconds(address, now)
        wait = wait or self._parts.rate_limiter.wait_seconds(caller, now)
        if not wait and self._in_flight >= self._parts.max_queries_in_flight:
            wait = 1.0
        if wait:
            message = f"too many requests; try again in {math.ceil(wait)} s"
            raise RequestRefused(429, message, retry_after_seconds=wait)
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1


def create_app(parts: WebhookParts, ready: Callable[[], Mapping[str, str] | None] = lambda: None) -> ASGIApp:
    app = _query_app()
    app.state.parts = parts
    app.state.in_flight = InFlightLimit(parts)

    async def state(http: Request) -> Response:
        status, media_type, body = health(http.url.path, ready, parts.metrics.registry)
        return Response(body, status, media_type=media_type)

    for path in ("/healthz", "/readyz", "/metrics"):
        app.add_route(path, state, methods=["GET"])

    async def failed(http: Request, error: Exception) -> Response:
        return failure_response(parts.metrics, http.url.path, error)

    for kind in (RequestRefused, LaneFull, BudgetSpent, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, failed)
    return Reviews(parts, app)


@cache
def openapi_document() -> Json:
    """The OpenAPI document of the webhook's queries and of the plans, which the controllers serve."""
    app = _query_app()
    for kind in KINDS:
        if kind.plan_path:
            app.add_api_route(
                kind.plan_path,
                _plan,
                methods=["POST"],
                summary=f"Plan for a {kind.kind}",
                responses=ERRORS,
                dependencies=[Security(BEARER)],
                openapi_extra={**_request_body(models.KubernetesObject), "servers": CONTROLLERS},
            )
    return app.openapi()


async def _plan() -> models.PlanResponse:
    """Says what the controller would do with the object. The caller needs the right to list its VMs or VMIs."""
    raise NotImplementedError("the controllers serve plans")


def _query_app() -> FastAPI:
    # FastAPI's own documentation routes are disabled: they need no token, and load scripts from the internet.
    app = FastAPI(
        title="Poolhouse webhook",
        version="v1alpha1",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.include_router(queries)
    return app


class Reviews:
    """An ASGI app that answers AdmissionReviews, and passes all other requests to `app`."""

    def __init__(self, parts: WebhookParts, app: ASGIApp) -> None:
        self._parts, self._app = parts, app
        self._decide: dict[str, Decide] = {"/mutate": parts.admission.mutate, "/validate": self._validate}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self._decide:
            await self._app(scope, receive, send)
            return
        try:
            response = await self._respond(scope, receive)
        except Exception as error:
            response = failure_response(self._parts.metrics, scope["path"], error)
        await response(scope, receive, send)

    async def _validate(self, request: AdmissionRequest) -> AdmissionResponse:
        return await compute(self._parts.admission.validate, request)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        if scope["method"] != "POST":
            raise HTTPException(405)
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


def _parts(http: Request) -> WebhookParts:
    parts: WebhookParts = http.app.state.parts
    return parts


async def caller_token(
    http: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]
) -> AsyncIterator[str]:
    """The caller's token. Raises `RequestRefused` without a token, or if the caller sends too many requests."""
    token = parse_token(http.headers.get("authorization", ""))
    with http.app.state.in_flight.slot(token, address_of(http.scope)):
        yield token


async def read_document(http: Request, token: Annotated[str, Depends(caller_token)]) -> AsyncIterator[Document]:
    parts, address = _parts(http), address_of(http.scope)
    async with parts.bodies.raw(http.scope, http.receive, address) as body:
        with parts.lane_of(body, address):
            yield Document(await compute(parse, body), token)


async def authorize_api_docs(http: Request, token: Annotated[str, Depends(caller_token)]) -> None:
    """Raises `QueryError` unless the caller may read the OpenAPI document of the API server."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/openapi/v3", "verb": "get"}},
    }
    path = access_review.SELF_SUBJECT_ACCESS_REVIEWS
    try:
        allowed = access_review.is_allowed(await _parts(http).api.request("POST", path, body=review, token=token))
    except ApiError as error:
        raise query_error(error) from None
    if not allowed:
        raise models.QueryError(403, Problem("", "you may not get /openapi/v3 of the API server"))


class QueryRoute(APIRoute):
    """A route that converts `QueryError` to a response and measures the duration of each query."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle = super().get_route_handler()

        async def timed(http: Request) -> Response:
            began = perf_counter()
            try:
                response = await handle(http)
            except models.QueryError as error:
                response = error_response(error.status, *error.problems, wait=error.retry_after_seconds)
            seconds = _parts(http).metrics.questions.labels(self.name, str(response.status_code))
            seconds.observe(perf_counter() - began)
            return response

        return timed


def _request_body(*models: type[BaseModel]) -> Json:
    """Describes a request body in the OpenAPI document. `read_document` reads the body, because FastAPI does not limit
    its size."""
    schemas = [model.model_json_schema() for model in models]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


queries = APIRouter(route_class=QueryRoute)


@queries.post(
    "/apis/vms/dryrun",
    name="dryrun",
    summary="Dry run",
    responses=ERRORS,
    response_model_exclude_unset=True,
    openapi_extra=_request_body(models.KubernetesObject),
)
async def dry_run(
    http: Request,
    document: Annotated[Document, Depends(read_document)],
    operation: Annotated[Operation, BeforeValidator(str.lower), Query()] = "create",
) -> models.DryRunResponse:
    """Decides what admission says about a VM, a VMI or an object of a Poolhouse kind. Nothing is stored. The caller
    needs the right to create or update the object."""
    return await _parts(http).dry_run.answer(document.json, document.token, operation)


@queries.post(
    "/apis/policies/explain",
    name="explain",
    summary="Explain migration policies",
    responses=ERRORS,
    response_model_exclude_unset=True,
    openapi_extra=_request_body(models.ExplainRequest, models.KubernetesObject),
)
async def explain(http: Request, document: Annotated[Document, Depends(read_document)]) -> models.ExplainResponse:
    """Says which migration policy a VM obeys and why. The body names a VM and what to assume, or is a VM or VMI. The
    caller needs the right to read the VM, its namespace and migration policies."""
    explainer = _parts(http).explain
    try:
        return models.ExplainResponse.model_validate(
            await explainer.explain(parse_question(document.json), document.token)
        )
    except ApiError as error:
        raise query_error(error) from None


@queries.get("/openapi.json", include_in_schema=False, dependencies=[Depends(authorize_api_docs)])
async def openapi() -> JSONResponse:
    return JSONResponse(openapi_document())


@queries.get("/docs", include_in_schema=False, dependencies=[Depends(authorize_api_docs)])
async def docs() -> HTMLResponse:
    return HTMLResponse(api_docs.page(openapi_document()))


def parse_token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii() or not token.isprintable():
        raise RequestRefused(401, "send your Kubernetes token: Authorization: Bearer TOKEN")
    return token


def error_response(status: int, *problems: Problem, wait: float | None = None) -> Response:
    """The response for an error. All errors have this form, even those for unknown paths."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
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
        case RequestValidationError():
            return error_response(400, *(Problem(str(each["loc"][-1]), each["msg"]) for each in error.errors()))
        case HTTPException():
            return error_response(error.status_code, Problem("", error.detail))
    log.error("%s failed", path, exc_info=error)
    return error_response(500, Problem("", "internal error; the webhook's log has the details"))
