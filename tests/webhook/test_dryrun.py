"""Dry runs: authorization, local problems, and answers of the API server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from defaulter.contract import Problem, UndecidedDocument
from poolhouse.api.kinds.resource_types import POOLS
from poolhouse.service.request_body import RequestRefused
from tests.builders import manifest
from tests.runtime.faulty_server import Request, Script, status
from tests.webhook.builders import api_server, disk, vm
from tests.webhook.conftest import RunningWebhook
from webhook.queries import InFlightLimit
from webhook.rate_limit import RateLimiter

VM = vm(disk("root"))
LIBVIRT_SHAPED = {
    "apiVersion": "kubevirt.io/v1alpha1",
    "kind": "VM",
    "metadata": {"name": "testvm"},
    "spec": {"domain": {"memory": {"unit": "MB", "value": 64}, "os": {"type": {"os": "hvm"}}, "type": "qemu"}},
}


async def test_the_object_as_it_would_be_stored(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server(headers={"Warning": '299 - "machine \\"q35\\" is now pc-q35-7.2"'})
    told = await webhook.dry_run(VM)
    assert told.status_code == 200
    assert told.json() == {
        "allowed": True,
        "problems": [],
        "warnings": ['machine "q35" is now pc-q35-7.2'],
        "object": VM,
    }


async def test_the_dry_run_is_sent_with_the_callers_token(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    await webhook.dry_run(VM, "janes-token")
    rights, dry_run = webhook.api_server.requests
    assert {rights.headers["authorization"], dry_run.headers["authorization"]} == {"Bearer janes-token"}
    assert rights.document["spec"]["resourceAttributes"] == {
        "namespace": "shop",
        "verb": "create",
        "group": "kubevirt.io",
        "version": "v1",
        "resource": "virtualmachines",
    }
    assert (dry_run.method, dry_run.path) == ("POST", "/apis/kubevirt.io/v1/namespaces/shop/virtualmachines")
    assert dry_run.query["dryRun"] == "All"


async def test_an_update_has_the_stored_resource_version(webhook: RunningWebhook) -> None:
    async def script(request: Request) -> None:
        if request.method == "GET":
            return await request.answer(200, {**VM, "metadata": {**VM["metadata"], "resourceVersion": "7"}})
        return await api_server(200)(request)

    webhook.api_server.script = script
    assert (await webhook.dry_run(VM, operation="update")).json()["allowed"]
    last = webhook.api_server.requests[-1]
    assert (last.method, last.query["dryRun"], last.document["metadata"]["resourceVersion"]) == ("PUT", "All", "7")


async def test_an_update_needs_the_right_to_get_the_object(webhook: RunningWebhook) -> None:
    async def script(request: Request) -> None:
        verb = request.document["spec"]["resourceAttributes"]["verb"]
        await request.answer(201, {"status": {"allowed": verb != "get"}})

    webhook.api_server.script = script
    told = await webhook.dry_run(VM, operation="update")
    assert (told.status_code, told.json()["problems"][0]["message"]) == (
        403,
        "you may not get virtualmachines in namespace shop",
    )


async def test_local_problems_are_reported_together_without_a_dry_run(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    pool = manifest(POOLS, "NOT a name", {"replica": 3, "replicas": -1})
    told = (await webhook.dry_run(pool)).json()
    assert not told["allowed"]
    assert {problem["path"] for problem in told["problems"]} >= {
        "metadata.name",
        "spec.replica",
        "spec.replicas",
        "spec.template",
    }
    assert len(webhook.api_server.requests) == 1


@pytest.mark.sentence("4.24")
async def test_unknown_fields_and_all_other_problems_are_in_one_answer(webhook: RunningWebhook) -> None:
    message = (
        'VirtualMachine in version "v1" cannot be handled as a VirtualMachine: strict decoding error: unknown field'
        ' "spec.template.spec.domain.cpuu", unknown field "spec.template.spec.domain.devices.disks[0].disk.buss"'
    )
    cause = {"field": "spec.template.spec.domain.machine.type", "message": "no such machine"}

    async def server(request: Request) -> None:
        if request.path.endswith("selfsubjectaccessreviews"):
            return await request.answer(201, {"status": {"allowed": True}})
        if request.query["fieldValidation"] == "Strict":
            return await request.answer(400, {**status(400, "BadRequest"), "message": message})
        refusal = status(422, "Invalid")
        return await request.answer(422, {**refusal, "details": {"causes": [cause]}})

    webhook.api_server.script = server
    told = (await webhook.dry_run(vm(disk(buss="sata"), cpuu={}))).json()
    assert told["problems"] == [
        {"path": "spec.template.spec.domain.cpuu", "message": 'unknown field; did you mean "cpu"?'},
        {
            "path": "spec.template.spec.domain.devices.disks[0].disk.buss",
            "message": 'unknown field; did you mean "bus"?',
        },
        {"path": "spec.template.spec.domain.machine.type", "message": "no such machine"},
    ]


async def test_an_object_that_the_defaulter_cannot_decide(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    webhook.defaulter.away, webhook.defaulter.fails = "there is no emulator for arm64 here", UndecidedDocument
    told = await webhook.dry_run(LIBVIRT_SHAPED)
    message = "the defaulter cannot decide: there is no emulator for arm64 here"
    assert (told.status_code, told.json()["problems"][0]["message"]) == (501, message)


@pytest.mark.parametrize("namespace", ["..", "a/b", "", "UPPER", 7, None, ["x"]])
async def test_odd_namespaces_never_become_part_of_a_path(webhook: RunningWebhook, namespace: Any) -> None:
    webhook.api_server.script = api_server()
    await webhook.dry_run(vm(disk(), meta={"namespace": namespace}))
    paths = {request.path for request in webhook.api_server.requests if "selfsubject" not in request.path}
    assert paths <= {"/apis/kubevirt.io/v1/namespaces/default/virtualmachines"}


@pytest.mark.sentence("4.8", "4.21")
async def test_the_libvirt_shaped_vm_goes_to_the_defaulter_alone(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    assert (await webhook.dry_run(LIBVIRT_SHAPED)).json()["allowed"]
    assert [request.path.rsplit("/")[-1] for request in webhook.api_server.requests] == ["selfsubjectaccessreviews"]
    assert webhook.defaulter.asked == [(LIBVIRT_SHAPED, None, "default", "s")]


async def test_problems_of_the_libvirt_shaped_vm(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    webhook.defaulter.refuses = lambda document: [Problem(path="spec.domain.os", message="bad")]
    told = (await webhook.dry_run(LIBVIRT_SHAPED)).json()
    assert (told["allowed"], told["problems"]) == (False, [{"path": "spec.domain.os", "message": "bad"}])
    webhook.defaulter.away = "gone"
    assert (await webhook.dry_run(LIBVIRT_SHAPED)).status_code == 503


async def test_other_kinds_are_not_allowed(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    told = await webhook.dry_run({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}})
    assert (told.status_code, told.json()["allowed"]) == (200, False)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}, id="another kind"),
        pytest.param({"kind": "VirtualMachine"}, id="no object"),
        pytest.param(VM, id="a VM"),
    ],
)
async def test_an_unknown_token_learns_nothing(webhook: RunningWebhook, document: Any) -> None:
    webhook.api_server.script = api_server(401, status(401, "Unauthorized"), may=None)
    told = await webhook.dry_run(document)
    assert told.status_code == 401
    assert told.json()["problems"] == [{"path": "", "message": "the API server does not know this token"}]


@pytest.mark.parametrize(
    ("document", "code"),
    [([], 400), ("x", 400), ({}, 400), ({"apiVersion": 1, "kind": "VirtualMachine"}, 400)],
)
async def test_a_body_that_is_no_object_is_refused(webhook: RunningWebhook, document: Any, code: int) -> None:
    webhook.api_server.script = api_server()
    told = await webhook.dry_run(document)
    assert (told.status_code, told.json()["allowed"]) == (code, False)


async def test_a_request_without_a_token_calls_no_service(webhook: RunningWebhook) -> None:
    told = await webhook.dry_run(VM, token=None)
    assert (told.status_code, told.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert webhook.api_server.requests == []


@pytest.mark.parametrize(
    ("script", "code", "sentence"),
    [
        pytest.param(api_server(may=False), 403, "you may not create virtualmachines in namespace shop", id="no right"),
        pytest.param(api_server(401, status(401, "Unauthorized")), 401, "does not know this token", id="a bad token"),
        pytest.param(api_server(500, status(500, "InternalError", "oh")), 503, "oh", id="an error of the server"),
        pytest.param(api_server(504, status(504, "Timeout", "slow")), 503, "slow", id="a timeout of the server"),
        pytest.param(
            api_server(429, status(429, "TooManyRequests"), {"Retry-After": "7"}), 503, "no", id="a busy server"
        ),
        pytest.param(api_server(200, b"<html>"), 503, "not JSON", id="an answer that is no JSON"),
    ],
)
async def test_requests_that_cannot_be_answered(
    webhook: RunningWebhook, script: Script, code: int, sentence: str
) -> None:
    webhook.api_server.script = script
    told = await webhook.dry_run(VM)
    assert (told.status_code, told.json()["allowed"]) == (code, False)
    assert sentence in told.json()["problems"][0]["message"]


async def test_requests_of_one_caller_are_limited(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    webhook.service.rate_limiter = RateLimiter(per_second=0.001, burst=20)
    codes = [(await webhook.dry_run(VM)).status_code for _ in range(25)]
    assert codes[:20] == [200] * 20
    last = await webhook.dry_run(VM)
    assert last.status_code == 429
    assert 1 <= int(last.headers["Retry-After"]) <= 1000
    assert (await webhook.dry_run(VM, "another")).status_code == 200


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param([("jane", "a")] * 3, ["jane at a", "jane at b"], id="a token holds a quarter"),
        pytest.param(
            [("1", "a"), ("2", "a"), ("3", "a"), ("4", "a"), ("5", "a")], ["jane at a"], id="an address, half"
        ),
        pytest.param([(str(each), str(each)) for each in range(8)], ["jane at a", "jane at b"], id="all together"),
    ],
)
async def test_queries_in_flight_leave_places_for_other_callers(
    webhook: RunningWebhook, others: list[tuple[str, str]], expected: list[str]
) -> None:
    webhook.service.rate_limiter = RateLimiter(per_second=1, burst=100)
    webhook.service.max_queries_in_flight = 8
    limit = InFlightLimit(webhook.service)

    def admitted(token: str, address: str) -> bool:
        try:
            held.enter_context(limit.slot(token, address))
        except RequestRefused:
            return False
        return True

    with ExitStack() as held:
        for token, address in others:
            admitted(token, address)
        refused = [f"jane at {address}" for address in ("a", "b") if not admitted("jane", address)]
    assert refused == expected
    with limit.slot("jane", "a"):
        pass
