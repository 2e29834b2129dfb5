"""The OpenAPI documents of the three services tell the truth: Schemathesis generates requests from each document, and
compares the answers with it. The services run in this process, with the real libvirt and a cluster that holds a pool.

The cases are the same in each run.
"""

from __future__ import annotations

from asyncio import Runner
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.types import ASGIApp

from controllers.pool import simulate as pool_plans
from controllers.pool.hypothetical_snapshot import hypothetical_snapshot
from controllers.pool.list_stores import list_stores as list_pool_stores
from controllers.replicaset import observe as replica_sets
from controllers.replicaset import simulate as set_plans
from controllers.sets.simulation import PlanEndpoint, authenticate
from defaulter import app as defaulter_app
from defaulter.contract import DEFAULTS_PATH
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.runtime.api import Api
from poolhouse.runtime.clock import ApiServerClock
from poolhouse.runtime.errors import ApiError, Forbidden, Invalid, Throttled, Unauthorized, Unavailable, Unreachable
from poolhouse.runtime.no_metrics import NO_METRICS
from poolhouse.runtime.resource import VMIS, VMS
from poolhouse.runtime.transport import Request
from poolhouse.service.health import HEALTH_PATHS, health_app
from poolhouse.service.json_api import JsonApi
from poolhouse.service.request_body import MAX_BODY_BYTES
from tests.builders import manifest, vm_spec
from tests.fuzz import documents
from tests.fuzz.services import ForAnyUser, LocalDefaulter, PoolCluster, create_webhook, running
from tests.planning import InlinePlanner
from tests.webhook.builders import review
from webhook.app import openapi_document

pytestmark = pytest.mark.libvirt

DRY_RUN, EXPLAIN, VERSION = "/apis/vms/dryrun", "/apis/policies/explain", "/version"
REVIEWS = ("/mutate", "/validate")
PLANS = (POOL.plan_path, REPLICA_SET.plan_path)
OPERATIONS = [("defaulter", DEFAULTS_PATH), ("webhook", DRY_RUN), ("webhook", EXPLAIN)]
OPERATIONS += [("controllers", path) for path in PLANS]
WITH_TOKEN = [each for each in OPERATIONS if each[0] != "defaulter"]
OPERATIONS += [("webhook", path) for path in REVIEWS]
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
TOKEN = {"Authorization": "Bearer jane"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Cluster(PoolCluster):
    """A cluster with a pool, whose API server fails on request."""

    fault: ApiError | None = None
    clock = ApiServerClock(NO_METRICS)

    async def send(self, request: Request) -> Json:
        if self.fault is not None:
            raise self.fault
        if not isinstance(at(request.body, "spec"), dict | None):
            raise Invalid("spec: must be an object", status=422)
        if request.method == "GET" and request.resource == "namespaces":
            return {"metadata": {"name": "shop", "labels": {"tier": "gold"}}}
        if request.method == "GET" and not request.path.endswith(request.resource):
            for each in self._items.get(request.resource, ()):
                if request.path.endswith(f"/{each['metadata']['name']}"):
                    return each
        return await super().send(request)


@dataclass(frozen=True)
class Service:
    app: ASGIApp
    document: Json
    runner: Runner

    @property
    def schema(self) -> Any:
        return schemathesis.openapi.from_dict(self.document)

    def send(self, request: httpx.Request) -> httpx.Response:
        return self.runner.run(self._send(request))

    async def _send(self, request: httpx.Request) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.send(request)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.send(httpx.Request(method, f"http://service{path}", **options))

    def ask(self, case: Case, *, headers: dict[str, str] | None = None) -> httpx.Response:
        """The answer to the case, with a token, after it was compared with the document."""
        options = case.as_transport_kwargs(base_url="http://service", headers=TOKEN if headers is None else headers)
        sent = requests.Request(**{name: value for name, value in options.items() if name in ARGUMENTS}).prepare()
        content = sent.body.encode() if isinstance(sent.body, str) else sent.body
        answer = self.send(httpx.Request(str(sent.method), str(sent.url), headers=dict(sent.headers), content=content))
        check(case, answer)
        return answer

    def post(self, path: str, document: Any, **parts: Any) -> httpx.Response:
        """The answer to a document, after it was compared with the OpenAPI document."""
        operation = self.schema[path]["POST"]
        return self.ask(operation.Case(body=document, media_type="application/json", **parts))


ARGUMENTS = ("method", "url", "headers", "params", "data", "json", "cookies")


def check(case: Case, answer: httpx.Response, *more: Any) -> None:
    case.validate_response(answer, checks=[*CHECKS, *more])
    check_headers(answer)
    # This defaulter has an emulator for one architecture: others get 501, which is documented.
    if answer.status_code != 501:
        case.validate_response(answer, checks=[not_a_server_error])


def check_headers(answer: httpx.Response) -> None:
    """RFC 9110 requires a header with some statuses, or recommends it, and programs rely on it."""
    wanted = {401: "www-authenticate", 405: "allow", 429: "retry-after", 503: "retry-after"}.get(answer.status_code)
    assert wanted is None or answer.headers.get(wanted), answer


@dataclass(frozen=True)
class Services:
    defaulter: Service
    webhook: Service
    controllers: Service
    cluster: Cluster

    def __getitem__(self, name: str) -> Service:
        found: Service = getattr(self, name)
        return found


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    cluster = Cluster()
    transport: Any = cluster
    api = ForAnyUser(transport, "tests")
    with Runner() as runner, running(runner, tmp_path_factory.mktemp("openapi") / "warm") as workers:
        service = partial(Service, runner=runner)
        yield Services(
            defaulter=service(workers.app, defaulter_app.openapi_document()),
            webhook=service(create_webhook(LocalDefaulter(workers.app), cluster), part(plans=False)),
            controllers=service(runner.run(create_controllers(api)), part(plans=True)),
            cluster=cluster,
        )


def part(*, plans: bool) -> Json:
    """What the webhook's document says about the paths of the webhook, or about those of the controllers."""
    document = openapi_document()
    paths = {path: item for path, item in document["paths"].items() if (path in PLANS) is plans}
    return {**document, "paths": paths}


async def create_controllers(api: Api) -> ASGIApp:
    stores, sets = await list_pool_stores(api, "shop"), await replica_sets.list_stores(api, "shop")
    of_pools = PlanEndpoint(api, VMS, POOL, InlinePlanner(), pool_plans.answer)
    of_pools.observe = lambda document: hypothetical_snapshot(stores, document, 250)
    of_sets = PlanEndpoint(api, VMIS, REPLICA_SET, InlinePlanner(), set_plans.answer)
    of_sets.observe = lambda document: set_plans.hypothetical_snapshot(sets, document, 250)
    endpoints = {POOL.plan_path: of_pools, REPLICA_SET.plan_path: of_sets}
    app: ASGIApp = JsonApi(health_app(lambda: None, CollectorRegistry()), endpoints, partial(authenticate, api))
    return app


# Documents that get past the schema


def envelope(random: Random) -> Json:
    document = documents.vm(random)
    more = {
        "apiVersion": "poolhouse.dev/v1alpha1",
        "oldObject": random.choice((None, document)),
        "vmi": random.choice((None, {})),
        "namespace": "shop",
        "seed": "s",
        "offered": {"everywhere": ["pc-q35-7.2"], "somewhere": ["pc-q35-7.2"]},
        "cpus": {"models": ["qemu64"], "features": ["vmx"]},
        "mayHaveRun": random.random() < 0.5,
        "kubevirt": {"spec": {"configuration": {"machineType": "q35"}}},
        "unread": "",
    }
    chosen = {name: value for name, value in more.items() if random.random() < 0.5}
    return {"kind": "DefaultingRequest", "object": document, **chosen}


def to_default(random: Random) -> Json:
    older = documents.of_kinds("VM")
    kinds: list[Callable[[], Json]] = [
        lambda: documents.vm(random),
        lambda: envelope(random),
        lambda: documents.ours(random, POOL, REPLICA_SET),
        *([lambda: random.choice(older)] if older else []),
    ]
    return random.choice(kinds)()


def to_explain(random: Random) -> Json:
    if random.random() < 0.4:
        return {**documents.vm(random), "kind": random.choice(("VirtualMachine", "VirtualMachineInstance"))}
    question: Json = {"name": random.choice(("web-1", "absent")), "namespace": "shop"}
    more = {
        "kind": "ExplainRequest",
        "withLabels": {"app": random.choice(("web", None))},
        "withPolicies": [documents.ours(random, MIGRATION_POLICY)],
    }
    return question | {name: value for name, value in more.items() if random.random() < 0.6}


VALID: dict[str, Callable[[Random], Json]] = {
    DEFAULTS_PATH: to_default,
    DRY_RUN: lambda random: random.choice((documents.vm, partial(documents.ours, random=random)))(random=random),
    EXPLAIN: to_explain,
    POOL.plan_path: lambda random: documents.ours(random, POOL),
    REPLICA_SET.plan_path: lambda random: documents.ours(random, REPLICA_SET),
    **dict.fromkeys(REVIEWS, lambda random: review(to_default(random))),
}
randoms = st.integers(0, 2**32).map(Random)


def examples(number: int) -> Any:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(max_examples=number, suppress_health_check=checks)


@pytest.mark.parametrize(("name", "path"), OPERATIONS)
def test_answers_to_valid_documents_are_those_of_the_document(services: Services, name: str, path: str) -> None:
    service, statuses = services[name], Counter[int]()

    @examples(30)
    @given(random=randoms)
    def ask(random: Random) -> None:
        statuses[service.post(path, VALID[path](random)).status_code] += 1

    ask()
    assert statuses[200] >= 10, "most documents pass the schema"


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: str(mode.value))
@pytest.mark.parametrize(("name", "path"), OPERATIONS)
def test_answers_to_generated_requests_are_those_of_the_document(
    services: Services, name: str, path: str, mode: GenerationMode
) -> None:
    service = services[name]

    @examples(40)
    @given(case=service.schema[path]["POST"].as_strategy(mode))
    def ask(case: Case) -> None:
        answer = service.ask(case)
        body = case.meta.components.get(ParameterLocation.BODY) if case.meta is not None else None
        if body is not None and body.mode is GenerationMode.NEGATIVE:
            assert answer.status_code >= 400 or (path == DRY_RUN and not answer.json()["allowed"]), answer.text
        elif path == DEFAULTS_PATH and answer.status_code == 400:
            paths = [problem["path"] for problem in answer.json()["problems"]]
            assert paths == [""], f"a request of the documented form, but for its numbers: {answer.text}"

    ask()


# Other requests


def is_problem(answer: httpx.Response) -> None:
    """All errors have one form, also those of requests that no operation describes."""
    assert answer.headers["content-type"] == "application/json"
    if answer.request.method != "HEAD":
        problems = answer.json()["problems"]
        assert all(set(each) == {"path", "message"} and each["message"] for each in problems)
        assert problems


def test_each_field_of_a_defaulting_request_is_checked(services: Services) -> None:
    request = services.defaulter.document["components"]["schemas"]["DefaultingRequest"]
    valid: Json = {"kind": "DefaultingRequest", "object": documents.of_kinds("VirtualMachine")[0]}
    wrong: dict[str, Any] = dict.fromkeys(request["properties"].keys() - {"kind"}, 7)
    for name, value in [*wrong.items(), ("apiVersion", "poolhouse.dev/v9"), ("apiVersion", None)]:
        answer = services.defaulter.post(DEFAULTS_PATH, {**valid, name: value})
        assert (answer.status_code, answer.json()["problems"][0]["path"]) == (400, name)
    assert services.defaulter.post(DEFAULTS_PATH, {**valid, "kind": None}).status_code == 422
    assert services.defaulter.post(DEFAULTS_PATH, {"object": valid["object"]}).status_code == 422
    assert set(request["required"]) == {"kind", "object"}


METHODS_OF: dict[str, dict[str, set[str]]] = {
    "defaulter": {DEFAULTS_PATH: {"POST"}, VERSION: {"GET"}, "/openapi.json": {"GET"}, "/docs": {"GET"}},
    "webhook": {path: {"POST"} for path in (DRY_RUN, EXPLAIN, *REVIEWS)}
    | {path: {"GET"} for path in ("/openapi.json", "/docs")},
    "controllers": {path: {"POST"} for path in PLANS},
}
for name_of_service in METHODS_OF:
    METHODS_OF[name_of_service] |= {path: {"GET", "HEAD"} for path in HEALTH_PATHS}


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, paths in METHODS_OF.items() for path in paths])
def test_a_path_answers_its_methods_only(services: Services, name: str, path: str) -> None:
    known = METHODS_OF[name][path]
    for method in METHODS:
        answer = services[name].request(method, path, headers=TOKEN)
        if method in known:
            assert answer.status_code not in (404, 405)
            continue
        assert (answer.status_code, {*answer.headers["allow"].split(", ")}) == (405, known), method
        is_problem(answer)


@pytest.mark.parametrize("path", ["/", "/nowhere", "/apis", "/apis/vms/defaults/", "/apis/vms/dryrun/", "//metrics"])
@pytest.mark.parametrize("name", METHODS_OF)
def test_an_unknown_path_has_the_form_of_errors(services: Services, name: str, path: str) -> None:
    for method in ("GET", "POST"):
        answer = services[name].request(method, path, headers=TOKEN)
        assert answer.status_code == 404
        is_problem(answer)


def test_every_path_has_its_methods_in_the_table(services: Services) -> None:
    for name, paths in METHODS_OF.items():
        described = {
            path: {method.upper() for method in item} for path, item in services[name].document["paths"].items()
        }
        assert described.items() <= paths.items()
        for path in described:
            if path != VERSION:
                assert (name, path) in OPERATIONS


REFUSED = [
    pytest.param({"headers": {"content-type": "text/plain"}}, 415, id="another content type"),
    pytest.param({"headers": {"content-encoding": "gzip"}}, 415, id="a compressed body"),
    pytest.param({"headers": {"content-type": ""}}, 415, id="no content type"),
    pytest.param({"content": b""}, 400, id="no body"),
    pytest.param({"content": b"[]"}, 400, id="a list"),
    pytest.param({"content": b"{"}, 400, id="no JSON"),
    pytest.param({"content": b'{"a": NaN}'}, 400, id="a number that JSON does not have"),
    pytest.param({"content": b" " * (MAX_BODY_BYTES + 1)}, 413, id="a large body"),
]


@pytest.mark.parametrize(("options", "status"), REFUSED)
@pytest.mark.parametrize(("name", "path"), OPERATIONS)
def test_a_refused_body_has_a_documented_answer(
    services: Services, name: str, path: str, options: dict[str, Any], status: int
) -> None:
    headers = {"content-type": "application/json", **TOKEN, **options.get("headers", {})}
    service = services[name]
    answer = service.request("POST", path, content=options.get("content", b"{}"), headers=headers)
    assert answer.status_code == status
    check(service.schema[path]["POST"].Case(), answer)


@pytest.mark.parametrize(("name", "path"), WITH_TOKEN)
def test_a_request_without_a_token_has_a_documented_answer(services: Services, name: str, path: str) -> None:
    service = services[name]
    answer = service.request("POST", path, json=VALID[path](Random(1)))
    assert answer.status_code == 401
    check(service.schema[path]["POST"].Case(), answer)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"text"', b'{"a": NaN}'])
@pytest.mark.parametrize(("name", "path"), WITH_TOKEN)
def test_only_a_known_token_learns_what_is_wrong_with_a_body(
    services: Services, name: str, path: str, content: bytes
) -> None:
    headers = {"content-type": "application/json", **TOKEN}
    services.cluster.fault = Unauthorized("Unauthorized", status=401)
    try:
        answer = services[name].request("POST", path, content=content, headers=headers)
    finally:
        services.cluster.fault = None
    assert answer.status_code == 401
    check(services[name].schema[path]["POST"].Case(), answer)


FAULTS = [
    pytest.param(Unauthorized("Unauthorized", status=401), {401}, id="an unknown token"),
    pytest.param(Forbidden("you may not", status=403), {200, 403}, id="a caller without rights"),
    pytest.param(Throttled("later", status=429, retry_after_seconds=2), {503}, id="a busy API server"),
    pytest.param(Unavailable("starting", status=503), {503}, id="an API server that starts"),
    pytest.param(Unreachable("refused"), {503}, id="no API server"),
]


@pytest.mark.parametrize(("fault", "statuses"), FAULTS)
@pytest.mark.parametrize(("name", "path"), WITH_TOKEN)
def test_an_api_server_that_fails_has_a_documented_answer(
    services: Services, name: str, path: str, fault: ApiError, statuses: set[int]
) -> None:
    valid = WEB_POOL if path != REPLICA_SET.plan_path else documents.of_kinds(REPLICA_SET.kind)[0]
    service, document = services[name], {"name": "web-1"} if path == EXPLAIN else valid
    services.cluster.fault = fault
    try:
        answer = service.request("POST", path, json=document, headers=TOKEN)
    finally:
        services.cluster.fault = None
    assert answer.status_code in statuses, answer.text
    case = service.schema[path]["POST"].Case()
    case.validate_response(answer, checks=CHECKS)
    check_headers(answer)


def test_the_versions_are_documented(services: Services) -> None:
    service = services.defaulter
    check(service.schema[VERSION]["GET"].Case(), service.request("GET", VERSION))


# One VM through all services

BARE = {"domain": {"devices": {}}}
WEB_POOL = manifest(POOL, "web", {"replicas": 7, "template": {"spec": vm_spec(BARE, running=True)}}, "shop")


@examples(25)
@given(random=randoms)
def test_a_vm_passes_through_all_services(services: Services, random: Random) -> None:
    vm = documents.vm(random)
    defaulted = services.defaulter.post(DEFAULTS_PATH, vm)
    if defaulted.status_code != 200:
        return
    complete = defaulted.json()
    again = services.defaulter.post(DEFAULTS_PATH, {"kind": "DefaultingRequest", "object": complete}).json()
    assert again["object"] == complete, "a complete VM stays as it is"
    as_xml = services.defaulter.request("POST", DEFAULTS_PATH, json=complete, headers={"Accept": "application/xml"})
    check(services.defaulter.schema[DEFAULTS_PATH]["POST"].Case(), as_xml)
    assert as_xml.content.startswith(b"<domain") is (as_xml.status_code == 200)

    for each in (vm, complete):
        for operation in ("create", "update"):
            services.webhook.post(DRY_RUN, each, query={"operation": operation})
    services.webhook.post(EXPLAIN, complete)
    is_vm = complete["kind"] == "VirtualMachine"
    vmi = complete["spec"]["template"] if is_vm else {"spec": complete["spec"]}
    pool = {**WEB_POOL, "spec": {"replicas": 7, "template": {"spec": {"running": True, "template": vmi}}}}
    dry_run = services.webhook.post(DRY_RUN, pool).json()
    plan = services.controllers.post(POOL.plan_path, pool)
    if dry_run["allowed"]:
        created = [step["vm"] for step in plan.json()["plan"] if step["action"] == "Create"]
        assert created == ["web-6", "web-7"]
