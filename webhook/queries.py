"""The HTTP routes for users and programs: queries with typed requests and responses."""

import hashlib
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.kind import Kind
from poolhouse.runtime import access_review
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import VMIS, VMS
from poolhouse.service.callers import address_of
from poolhouse.service.cpu_lane import compute
from poolhouse.service.held_counter import HeldCounter
from poolhouse.service.json_api import bearer_token
from poolhouse.service.request_body import RequestRefused, parse
from webhook import models
from webhook.api_errors import query_error
from webhook.dryrun import LIBVIRT_VM, Operation, authenticate
from webhook.error_responses import error_response
from webhook.explain import PolicyExplainer, parse_question
from webhook.parts import WebhookParts, parts_of

BEARER = HTTPBearer(
    auto_error=False, scheme_name="token", description="A token of the cluster, as the API server accepts it."
)
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": models.ErrorResponse, "description": "The request was refused; the problems say why."},
    501: {"model": models.ErrorResponse, "description": "The defaulter cannot decide this object."},
    500: {"model": models.ErrorResponse, "description": "An error of the service, whose log has the details."},
    503: {"model": models.ErrorResponse, "description": "A service that the answer needs gave none. See Retry-After."},
}
WITHOUT_DEFAULTER = {code: answer for code, answer in ERRORS.items() if code != 501}
CONTROLLERS = [{"url": "https://poolhouse-controllers.poolhouse-system.svc", "description": "The controllers"}]


@dataclass(frozen=True)
class Document:
    """The JSON object in a query's body, and a client with the caller's token."""

    json: Json
    caller: Api


class InFlightLimit:
    """Limits the rate of queries of each caller, and the number of queries in flight: of a token to a quarter of all,
    and of an address to half, because a caller with a new token in each query is many callers."""

    def __init__(self, parts: WebhookParts) -> None:
        self._parts = parts
        self._of_caller = HeldCounter[str]()
        self._of_address = HeldCounter[str]()

    @contextmanager
    def slot(self, token: str, address: str) -> Iterator[None]:
        caller, now = hashlib.sha256(token.encode()).hexdigest(), monotonic()
        wait = self._parts.address_limiter.wait_seconds(address, now)
        wait = wait or self._parts.rate_limiter.wait_seconds(caller, now)
        most = self._parts.max_queries_in_flight
        if not wait and (
            self._of_address.total() >= most
            or self._of_address[address] >= most // 2
            or self._of_caller[caller] >= most // 4
        ):
            wait = 1.0
        if wait:
            message = f"too many requests; try again in {math.ceil(wait)} s"
            raise RequestRefused(429, message, retry_after_seconds=wait)
        with self._of_caller.one_more(caller), self._of_address.one_more(address):
            yield


async def authorized_client(
    http: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]
) -> AsyncIterator[Api]:
    """A client with the caller's token. Raises `RequestRefused` without a token, or after too many requests."""
    token = bearer_token(http.scope["headers"])
    if not token:
        raise RequestRefused(401, "send your Kubernetes token: Authorization: Bearer TOKEN")
    with http.app.state.in_flight.slot(token, address_of(http.scope)):
        yield parts_of(http).api.with_token(lambda: token)


Caller = Annotated[Api, Depends(authorized_client)]


async def read_document(http: Request, caller: Caller) -> AsyncIterator[Document]:
    parts, address = parts_of(http), address_of(http.scope)
    async with parts.bodies.raw(http.scope, http.receive, address) as body:
        with parts.lane_of(body, address):
            try:
                document = await compute(parse, body)
            except RequestRefused:
                await authenticate(caller)
                raise
            yield Document(document, caller)


async def authorize_api_docs(http: Request, caller: Caller) -> None:
    """Raises `QueryError` unless the caller may read the OpenAPI document of the API server."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/openapi/v3", "verb": "get"}},
    }
    path = access_review.SELF_SUBJECT_ACCESS_REVIEWS
    try:
        allowed = access_review.is_allowed(await caller.request("POST", path, body=review))
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
            seconds = parts_of(http).metrics.questions.labels(self.name, str(response.status_code))
            seconds.observe(perf_counter() - began)
            return response

        return timed


def json_body(*schemas: Json) -> Json:
    """Describes a request body in the OpenAPI document. `read_document` reads the body, because FastAPI does not limit
    its size."""
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _object(description: str, kinds: Iterable[str], required: Iterable[str], **properties: Json) -> Json:
    """The schema of Kubernetes objects. The answer says what is wrong inside of metadata, spec and status."""
    known: Json = {"apiVersion": {"type": "string"}, "kind": {"enum": sorted(kinds)}, "metadata": {"type": "object"}}
    properties = {**known, "spec": {"type": "object"}, **properties}
    return {"type": "object", "description": description, "properties": properties, "required": [*required]}


def _planned(kind: Kind) -> Json:
    properties: Json = {"apiVersion": {"enum": [*kind.api_versions]}, "status": {}}
    properties["metadata"] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    found = _object(f"A {kind.kind}.", [kind.kind], ("apiVersion", "kind", "metadata", "spec"), **properties)
    return {**found, "additionalProperties": False}


VIRTUAL_MACHINES = (VMS.kind, VMIS.kind)
DRY_RUN_OBJECT = _object(
    "A VM, a VMI or an object of a Poolhouse kind.",
    {*VIRTUAL_MACHINES, LIBVIRT_VM[1], *(kind.kind for kind in KINDS)},
    ("apiVersion", "kind", "metadata"),
)
EXPLAINED_OBJECT: Json = {
    **_object(
        "A VM or a VMI, which need not exist.",
        VIRTUAL_MACHINES,
        ("kind", "metadata"),
        apiVersion={"type": "string", "pattern": f"^{VMS.group}/", "default": VMS.api_version},
        status={},
    ),
    "additionalProperties": False,
}


queries = APIRouter(route_class=QueryRoute)


@queries.post(
    "/apis/vms/dryrun",
    name="dryrun",
    summary="Dry run",
    responses=ERRORS,
    response_model_exclude_unset=True,
    openapi_extra=json_body(DRY_RUN_OBJECT),
)
async def dry_run(
    http: Request,
    document: Annotated[Document, Depends(read_document)],
    operation: Annotated[Operation, BeforeValidator(str.lower), Query()] = "create",
) -> models.DryRunResponse:
    """Decides what admission says about a VM, a VMI or an object of a Poolhouse kind. Nothing is stored. The caller
    needs the right to create or update the object."""
    return await parts_of(http).dry_run.answer(document.json, document.caller, operation)


@queries.post(
    "/apis/policies/explain",
    name="explain",
    summary="Explain migration policies",
    responses=ERRORS,
    response_model_exclude_unset=True,
    openapi_extra=json_body(models.ExplainRequest.model_json_schema(), EXPLAINED_OBJECT),
)
async def explain(http: Request, document: Annotated[Document, Depends(read_document)]) -> models.ExplainResponse:
    """Says which migration policy a VM obeys and why. The body names a VM and what to assume, or is a VM or VMI. The
    caller needs the right to read the VM, its namespace and migration policies."""
    try:
        question = parse_question(document.json)
    except models.QueryError:
        await authenticate(document.caller)
        raise
    try:
        return models.ExplainResponse.model_validate(await PolicyExplainer(document.caller).explain(question))
    except ApiError as error:
        raise query_error(error) from None


def document_plans(app: FastAPI) -> None:
    """Adds the plans, which the controllers serve, to the document of an application that is only documented."""
    for kind in KINDS:
        if kind.plan_path:
            app.add_api_route(
                kind.plan_path,
                _plan,
                methods=["POST"],
                summary=f"Plan for a {kind.kind}",
                responses=WITHOUT_DEFAULTER,
                dependencies=[Security(BEARER)],
                openapi_extra={**json_body(_planned(kind)), "servers": CONTROLLERS},
            )


async def _plan() -> models.PlanResponse:
    """Says what the controller would do with the object. The caller needs the right to list its VMs or VMIs."""
    raise NotImplementedError("the controllers serve plans")
