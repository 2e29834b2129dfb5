"""The REST service: sends the bodies of requests to workers, and serves its OpenAPI document."""

import asyncio
import json
import math
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from defaulter.messages import DEFAULTS_PATH, TENANT_HEADER, DefaultingRequest, DefaultingResponse, Problems, Version
from defaulter.metrics import Metrics
from defaulter.vm_paths import PATHS_BY_KIND
from defaulter.worker_pool import DocumentFailed, QueueFull, RequestFailed, WorkerPool
from defaulter.worker_protocol import Operation
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.service import api_docs
from poolhouse.service.request_body import MAX_HELD_BYTES, BodyReader, RequestRefused

MAX_TENANT_LENGTH = 253
TENANT_PARAMETER = {
    "name": TENANT_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": (
        "The namespace of the document. Namespaces take turns at the workers, and each has a part of the queue and of"
        f" the memory for bodies. Without the header, or with more than {MAX_TENANT_LENGTH} characters, the address of"
        " the caller counts instead."
    ),
}
"""longest name of a namespace, with room to spare"""
DOCUMENT_SCHEMA = {
    "type": "object",
    "description": "The document of a VM, a VMI, a replica set or a pool; `VM` is the VM with a libvirt domain.",
    "properties": {"apiVersion": {"type": "string"}, "kind": {"enum": [*sorted(PATHS_BY_KIND), "VM"]}},
    "required": ["kind"],
}
REQUEST_SCHEMA = {"anyOf": [{"$ref": "#/components/schemas/DefaultingRequest"}, DOCUMENT_SCHEMA]}
PROBES = ["GET", "HEAD"]
NO_DOMAIN = {"description": "With `Accept: application/xml`: the defaults of this VM need no libvirt domain"}
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {
        "model": Problems,
        "description": "The body is no JSON object, is late, or its `DefaultingRequest` is invalid",
    },
    413: {"model": Problems, "description": "The body is too large"},
    415: {"model": Problems, "description": "The body is not `application/json`, or is compressed"},
    422: {"model": Problems, "description": "The document is invalid: every problem with its path"},
    429: {"model": Problems, "description": "Too many requests wait; `Retry-After` says when to try again"},
    501: {"model": Problems, "description": "This defaulter cannot decide this document, but others"},
    500: {"model": Problems, "description": "An error of the defaulter, whose log has the details"},
    503: {"model": Problems, "description": "No worker works; `Retry-After` says when to try again"},
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": DefaultingResponse | dict[str, Any], "content": {"application/xml": {"schema": {"type": "string"}}}},
    204: NO_DOMAIN,
    **ERRORS,
}


def create(workers: WorkerPool, metrics: Metrics, *, body_seconds: float = 5.0) -> FastAPI:
    # FastAPI's own documentation page loads scripts from the internet.
    app = FastAPI(
        title="Poolhouse defaulter",
        version="v1alpha1",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    bodies = BodyReader(timeout_seconds=body_seconds, held_bytes_per_holder=MAX_HELD_BYTES // 4, timeout_status=400)
    _add_api(app, workers, metrics, bodies)
    _add_probes(app, workers, metrics)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)
    return app


def _add_api(app: FastAPI, workers: WorkerPool, metrics: Metrics, bodies: BodyReader) -> None:
    @app.post(
        DEFAULTS_PATH,
        responses=ANSWERS,
        openapi_extra={
            "parameters": [TENANT_PARAMETER],
            "requestBody": {"required": True, "content": {"application/json": {"schema": REQUEST_SCHEMA}}},
        },
    )
    async def set_defaults(request: Request) -> Response:
        """Fills every unset field that the guest of a VM sees.

        The body is a VM, a VMI, a replica set or a pool, or a `DefaultingRequest` with such a document. The response
        has the same form. With `Accept: application/xml` it is the libvirt domain. Errors are JSON.
        """
        loop = asyncio.get_running_loop()
        try:
            tenant = tenant_of(request)
            async with bodies.raw(request.scope, request.receive, tenant) as body:
                begin = loop.time()
                as_xml = request.headers.get("accept") == "application/xml"
                operation = Operation.DOMAIN if as_xml else Operation.DOCUMENT
                status, content = await workers.ask(operation, body, tenant=tenant)
            metrics.duration.observe(loop.time() - begin)
            if as_xml and status == 200:
                response = Response(content, media_type="application/xml") if content else Response(status_code=204)
            else:
                response = _answer(status, content)
        except RequestRefused as error:
            response = _problem(error.status, error.message, error.retry_after_seconds)
        except RequestFailed as error:
            response = _failure(error)
        metrics.requests.labels(str(response.status_code)).inc()
        return response

    @app.get("/version", responses={200: {"model": Version}, **{code: ERRORS[code] for code in (500, 503)}})
    async def get_version() -> Response:
        """Versions of Poolhouse, libvirt and QEMU, and the machine types that QEMU has."""
        try:
            status, content = await workers.ask(Operation.VERSION)
        except RequestFailed as error:
            return _problem(503, str(error), retry_seconds=1)
        if status == 200:
            content = json.dumps({"poolhouse": own_version(), **json.loads(content)}).encode()
        return _answer(status, content)

    @app.get("/openapi.json", include_in_schema=False)
    async def get_openapi() -> JSONResponse:
        return JSONResponse(openapi_document())

    @app.get("/docs", include_in_schema=False)
    async def get_docs() -> HTMLResponse:
        return HTMLResponse(api_docs.page(openapi_document()))


def _add_probes(app: FastAPI, workers: WorkerPool, metrics: Metrics) -> None:
    @app.api_route("/healthz", methods=PROBES, include_in_schema=False)
    async def healthz() -> Response:
        return Response("ok", media_type="text/plain")

    @app.api_route("/readyz", methods=PROBES, include_in_schema=False)
    async def readyz() -> Response:
        """Responds with 200 if libvirt can define a domain now, and says what does not confine the workers. The number
        of waiting requests does not matter."""
        if workers.counts.ready == 0 and workers.counts.start_error:
            return Response(f"no worker starts: {workers.counts.start_error}", 503, media_type="text/plain")
        try:
            status, content = await workers.ask(Operation.PROBE, urgent=True)
        except RequestFailed as error:
            return Response(f"libvirt: {error}", 503, media_type="text/plain")
        if status != 200:
            return Response(content, status, media_type="text/plain")
        missing = workers.counts.unconfined.items()
        lines = ("ok", *(f"workers are not confined by {name}: {cause}" for name, cause in missing))
        return Response("\n".join(lines), media_type="text/plain")

    @app.api_route("/metrics", methods=PROBES, include_in_schema=False)
    async def get_metrics() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


def openapi_document() -> Json:
    """The OpenAPI document with the model of the request. FastAPI does not know the model: a worker parses the body."""
    without_workers: Any = None
    document = create(without_workers, without_workers).openapi()
    request = DefaultingRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = request.pop("$defs")
    for definition in definitions.values():
        for field in definition["properties"].values():
            field.pop("uniqueItems", None)  # a name may be listed twice
    document["components"]["schemas"] |= {**definitions, "DefaultingRequest": request}
    return document


def tenant_of(request: Request) -> str:
    """Whose request it is: the namespace that a client of Poolhouse names, or the address of any other caller."""
    named = request.headers.get(TENANT_HEADER, "")
    if named and len(named) <= MAX_TENANT_LENGTH:
        return f"namespace {named}"
    return f"address {request.client.host if request.client else 'unknown'}"


async def _http_error(request: Request, error: Exception) -> Response:
    """The response to an unknown path, or to a method that a path does not have."""
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, error.detail, headers=error.headers or {})


async def _internal_error(request: Request, error: Exception) -> Response:
    return _problem(500, "internal error; the log of the defaulter has the details")


def _answer(status: int, content: bytes) -> Response:
    """The response with a worker's answer."""
    headers = {"Retry-After": "1"} if status == 503 else {}
    return Response(content, status, media_type="application/json", headers=headers)


def _failure(error: RequestFailed) -> Response:
    match error:
        case QueueFull():
            return _problem(429, str(error), retry_seconds=1)
        case DocumentFailed():
            return _problem(501, str(error), path=error.path)
        case _:
            return _problem(503, str(error), retry_seconds=1)


def _problem(
    status: int,
    message: str,
    retry_seconds: float | None = None,
    path: str = "",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    headers = {**headers, **({} if retry_seconds is None else {"Retry-After": f"{math.ceil(retry_seconds)}"})}
    content = Problems(problems=(Problem(path, message),)).model_dump_json()
    return Response(content, status, media_type="application/json", headers=headers)


def own_version() -> str:
    try:
        return version("poolhouse")
    except PackageNotFoundError:
        return "unknown"
