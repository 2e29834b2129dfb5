"""The FastAPI application of the webhook: admission for the API server, health checks, metrics, and the queries of
`webhook.queries`.

FastAPI parses neither the body nor the answer of a review. A body counts towards limits before it is parsed, and orjson
is faster than Pydantic, which would also drop the fields of objects that no model has.
"""

import re
from collections.abc import Awaitable, Callable
from functools import cache
from time import perf_counter
from typing import Any

import orjson
from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.service import api_docs
from poolhouse.service.callers import address_of
from poolhouse.service.cpu_lane import BudgetSpent, LaneFull, compute
from poolhouse.service.health import HEALTH_PATHS, health
from poolhouse.service.request_body import RequestRefused, parse
from webhook import models
from webhook.error_responses import error_response, failure_response
from webhook.parts import WebhookParts, parts_of
from webhook.queries import (
    WITHOUT_DEFAULTER,
    InFlightLimit,
    QueryRoute,
    authorize_api_docs,
    document_plans,
    json_body,
    queries,
)
from webhook.review import AdmissionRequest, AdmissionResponse, from_admission_review, to_admission_review

Decide = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]

_NAMESPACE = re.compile(rb'"namespace":\s*"([a-z0-9.-]{1,253})"')
REVIEW: dict[str, Any] = {
    "responses": {
        **WITHOUT_DEFAULTER,
        200: {"model": models.AnsweredReview, "description": "The decision, with the JSON patch of a changed object."},
    },
    "openapi_extra": json_body({"$ref": "#/components/schemas/AdmissionReview"}),
}

admission = APIRouter()


@admission.post("/mutate", summary="Admit and change", **REVIEW)
async def mutate(http: Request) -> Response:
    """Checks an object of a Poolhouse kind, and adds the hardware of a VM or VMI. For API servers, which show a client
    certificate if the cluster has one for them."""
    return await answer_review(http, parts_of(http).admission.mutate)


@admission.post("/validate", summary="Admit", **REVIEW)
async def validate(http: Request) -> Response:
    """Checks an object after all webhooks have changed it. For API servers, like `/mutate`."""
    return await answer_review(http, parts_of(http).admission.admit)


async def answer_review(http: Request, decide: Decide) -> Response:
    began, path, parts = perf_counter(), http.scope["path"], parts_of(http)
    try:
        async with parts.reviews.read(http.scope, http.receive) as body:
            with parts.lane_of(body, f"{address_of(http.scope)} {namespace_in(body)}"):
                request = await compute(read_review, body)
                response = await decide(request)
                answer = await compute(render_review, request, response)
    except Exception as error:
        return failure_response(parts.metrics, path, error)
    parts.metrics.reviewed(path[1:], request, response, perf_counter() - began)
    return Response(answer, media_type="application/json")


def namespace_in(body: bytes) -> str:
    """The namespace of a review that is not parsed yet. API servers write it before the object. A caller that writes
    another one only chooses whose share of the lane it uses, among those of its own address."""
    found = _NAMESPACE.search(body, 0, 4096)
    return found[1].decode() if found else ""


def read_review(body: bytes) -> AdmissionRequest:
    # The API server takes an answer other than 200 for an outage of the webhook, so that a number of a user must not be
    # the reason for one. The checks of the fields refuse it.
    return from_admission_review(parse(body, large_integers=True))


def render_review(request: AdmissionRequest, response: AdmissionResponse) -> bytes:
    return orjson.dumps(to_admission_review(request, response))


documentation = APIRouter(route_class=QueryRoute, include_in_schema=False, dependencies=[Depends(authorize_api_docs)])


@documentation.get("/openapi.json")
async def openapi() -> JSONResponse:
    return JSONResponse(openapi_document())


@documentation.get("/docs")
async def docs() -> HTMLResponse:
    return HTMLResponse(api_docs.page(openapi_document()))


probes = APIRouter(include_in_schema=False)


async def probe(http: Request) -> Response:
    status, media_type, body = health(http.scope["path"], lambda: None, parts_of(http).metrics.registry)
    return Response(body, status, media_type=media_type)


for path in HEALTH_PATHS:
    probes.add_api_route(path, probe, methods=["GET", "HEAD"])


def create_app(parts: WebhookParts) -> FastAPI:
    app = _routes()
    app.state.parts = parts
    app.state.in_flight = InFlightLimit(parts)

    async def invalid(http: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return error_response(400, *(Problem(str(each["loc"][-1]), each["msg"]) for each in error.errors()))

    async def failed(http: Request, error: Exception) -> Response:
        return failure_response(parts.metrics, http.scope["path"], error)

    app.add_exception_handler(RequestValidationError, invalid)
    for kind in (RequestRefused, LaneFull, BudgetSpent, HTTPException, Exception):
        app.add_exception_handler(kind, failed)
    return app


def _routes() -> FastAPI:
    # FastAPI's own documentation routes are disabled: they need no token, and load scripts from the internet.
    app = FastAPI(
        title="Poolhouse webhook",
        version="v1alpha1",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    for router in (admission, queries, documentation, probes):
        app.include_router(router)
    return app


@cache
def openapi_document() -> Json:
    """The OpenAPI document of the webhook. It also describes the endpoint for plans, which the controllers serve, and
    the model of reviews, which FastAPI does not parse."""
    app = _routes()
    document_plans(app)
    document: Json = app.openapi()
    review = models.AdmissionReview.model_json_schema(ref_template="#/components/schemas/{model}")
    document["components"]["schemas"] |= {**review.pop("$defs"), "AdmissionReview": review}
    return document
