"""Requests, retries and errors of the Python client, with answers that a test chooses.

The examples of docs/python.md run against a real API server, in tests/docs.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from poolhouse_client.client import (
    AlreadyExists,
    ApiError,
    AsyncClient,
    ClaimFailed,
    Client,
    Conflict,
    Connection,
    DeadlineExceeded,
    Invalid,
    NotFound,
    Stalled,
    Unavailable,
    Unreachable,
)

Json = dict[str, Any]
Answer = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]
CONNECTION = Connection("https://cluster", ssl.create_default_context(), None, "team")
POOLS = "/apis/kubevirt.io/v1/namespaces/team/virtualmachinepools"
CLAIMS = "/apis/poolhouse.dev/v1alpha1/namespaces/team/virtualmachineclaims"


class Server:
    """Gives the answers in order, and records the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[httpx.Request] = []
        self._answers: Iterator[Answer] = iter(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    @property
    def calls(self) -> list[str]:
        return [f"{each.method} {each.url.path}" for each in self.requests]

    @property
    def client(self) -> Client:
        return Client(connection=CONNECTION, transport=httpx.MockTransport(self), timeout_seconds=5)


def answer(body: Json, code: int = 200) -> httpx.Response:
    return httpx.Response(code, json=body)


def status(code: int, reason: str, message: str = "no", **headers: str) -> httpx.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return httpx.Response(code, json=body, headers={"Retry-After": "0", **headers})


def pool(*conditions: str, generation: int = 2, observed: int = 2, **metadata: Any) -> Json:
    found = [{"type": each, "status": "True", "reason": "R", "message": "why"} for each in conditions]
    return {
        "metadata": {"name": "web", "uid": "u", "resourceVersion": "5", "generation": generation, **metadata},
        "spec": {"replicas": 3, "template": {"spec": {}}, "addedLater": 1},
        "status": {"observedGeneration": observed, "conditions": found},
    }


def listed(*items: Json) -> httpx.Response:
    return answer({"items": list(items), "metadata": {"resourceVersion": "5"}})


def watched(*events: tuple[str, Json]) -> httpx.Response:
    lines = (json.dumps({"type": kind, "object": document}) for kind, document in events)
    return httpx.Response(200, text="".join(f"{line}\n" for line in lines))


def test_fields_that_the_client_does_not_know_are_written_back() -> None:
    server = Server(answer(pool()), answer(pool()))
    with server.client as client:
        client.pools.edit("web", lambda found: setattr(found.spec, "replicas", 4))
    written = json.loads(server.requests[1].content)
    assert written["spec"] == {"replicas": 4, "template": {"spec": {}}, "addedLater": 1}
    assert (written["apiVersion"], written["metadata"]["resourceVersion"]) == ("kubevirt.io/v1", "5")


def test_an_edit_begins_again_after_a_conflict() -> None:
    server = Server(answer(pool()), status(409, "Conflict"), answer(pool()), answer(pool()))
    with server.client as client:
        client.pools.edit("web", lambda found: None)
    assert server.calls == [f"GET {POOLS}/web", f"PUT {POOLS}/web"] * 2


@pytest.mark.parametrize(
    ("answers", "error", "sent"),
    [
        pytest.param([status(404, "NotFound")], NotFound, 1, id="a refusal is final"),
        pytest.param([status(422, "Invalid")], Invalid, 1, id="an invalid object is refused for good"),
        pytest.param([status(429, "TooManyRequests"), answer(pool())], None, 2, id="too many requests"),
        pytest.param([status(500, "InternalError"), answer(pool())], None, 2, id="a failure of the server"),
        pytest.param([httpx.ConnectError("refused"), answer(pool())], None, 2, id="no connection"),
        pytest.param([httpx.Response(200, text="<html>"), answer(pool())], None, 2, id="a proxy answers"),
        pytest.param([status(503, "X", **{"Retry-After": "60"})], ApiError, 1, id="a pause beyond the deadline"),
    ],
)
def test_reads_are_repeated(answers: list[Answer], error: type[Exception] | None, sent: int) -> None:
    server = Server(*answers)
    with server.client as client:
        if error is None:
            assert client.pools.get("web").name == "web"
        else:
            with pytest.raises(error, match=f"GET {POOLS}/web"):
                client.pools.get("web")
    assert len(server.requests) == sent


WEBHOOK_DOWN = answer(
    {"kind": "Status", "message": 'Internal error occurred: failed calling webhook "pools.poolhouse.dev": EOF'}, 500
)


@pytest.mark.parametrize(
    ("first", "error"),
    [
        pytest.param(status(429, "TooManyRequests"), None, id="the server has not executed it"),
        pytest.param(WEBHOOK_DOWN, None, id="a webhook was down, so the server has not executed it"),
        pytest.param(httpx.ReadError("lost"), Unreachable, id="the server may have executed it"),
        pytest.param(httpx.Response(500, text="?"), Unavailable, id="after 500 the server may have executed it"),
    ],
)
def test_a_creation_is_repeated_only_if_it_was_not_executed(first: Answer, error: type[Exception] | None) -> None:
    server = Server(first, answer(pool()))
    with server.client as client:
        if error is None:
            client.pools.create(pool())
        else:
            with pytest.raises(error):
                client.pools.create(pool())
    assert len(server.requests) == (2 if error is None else 1)


def test_an_error_of_a_service_has_its_problems() -> None:
    problems = [{"path": "spec.replicas", "message": "must be a number"}, {"path": "", "message": "no token"}]
    server = Server(answer({"allowed": False, "problems": problems, "warnings": [], "object": None}, 422))
    client = Client(connection=CONNECTION, transport=httpx.MockTransport(server), controllers="https://controllers")
    with client, pytest.raises(Invalid, match=r"spec\.replicas: must be a number; no token") as raised:
        client.plan({"kind": "VirtualMachinePool"})
    assert raised.value.causes[0]["field"] == "spec.replicas"
    assert str(server.requests[0].url) == "https://controllers/apis/pools/plan"


def test_a_service_without_a_url_is_named() -> None:
    with Server().client as client, pytest.raises(ValueError, match="controllers=URL"):
        client.plan({"kind": "VirtualMachinePool"})


def test_a_wait_ends_with_the_state_of_the_last_change() -> None:
    events = (("MODIFIED", pool("Ready", observed=1)), ("MODIFIED", pool("Reconciling")), ("MODIFIED", pool("Ready")))
    server = Server(answer(pool("Ready", observed=1)), listed(pool("Ready", observed=1)), watched(*events))
    with server.client as client:
        assert client.pools.wait_ready("web").ready


def test_a_wait_for_a_stalled_object_ends_at_once() -> None:
    server = Server(answer(pool("Stalled")))
    with server.client as client, pytest.raises(Stalled, match="VirtualMachinePool web"):
        client.pools.wait_ready("web")


def test_a_wait_ends_at_its_deadline_with_the_object() -> None:
    server = Server(answer(pool(observed=-1)), listed(pool(observed=-1)))
    with server.client as client, pytest.raises(DeadlineExceeded, match="not observed the last change") as raised:
        client.pools.wait_ready("web", timeout_seconds=0)
    assert raised.value.found is not None


def test_a_wait_for_a_deleted_object_ends() -> None:
    server = Server(answer(pool()), listed(pool()), watched(("DELETED", pool())))
    with server.client as client, pytest.raises(NotFound, match="was deleted"):
        client.pools.wait_ready("web")


def test_a_watch_lists_again_when_the_server_has_forgotten_its_position() -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "details": {"retryAfterSeconds": 0}}
    first, other = pool(), pool(name="db", uid="v")
    server = Server(listed(first), watched(("ADDED", other), ("ERROR", gone)), listed(other), watched())
    found = []
    with server.client as client:
        for event in client.pools.watch(timeout_seconds=60):
            found.append((event.type, event.object.name))
            if len(found) == 4:
                break
    assert found == [("ADDED", "web"), ("ADDED", "db"), ("DELETED", "web"), ("MODIFIED", "db")]


def test_a_list_has_all_pages() -> None:
    page = answer({"items": [pool()], "metadata": {"resourceVersion": "5", "continue": "more"}})
    server = Server(page, listed(pool()))
    with server.client as client:
        assert len(client.pools.list(label_selector="app=web")) == 2
    assert dict(server.requests[1].url.params) == {"labelSelector": "app=web", "limit": "500", "continue": "more"}


def claim(*conditions: str, uid: str = "u", **status: Any) -> Callable[[httpx.Request], httpx.Response]:
    """The claim of the request: the client has chosen its name."""

    def respond(request: httpx.Request) -> httpx.Response:
        name = (
            json.loads(request.content)["metadata"]["name"]
            if request.method == "POST"
            else request.url.path.split("/")[-1]
        )
        found = pool(*conditions, name=name, namespace="team", uid=uid)
        return answer({**found, "spec": {}, "status": {**found["status"], **status}})

    return respond


READY = claim("Ready", addresses=["10.0.0.1"], vmRef={"name": "vm", "uid": "1"})


def test_a_claim_is_deleted_after_an_exception() -> None:
    server = Server(claim(), READY, answer({}))
    with server.client as client, pytest.raises(KeyError), client.claims.claim("web") as vm:
        raise KeyError(f"{vm.name} {vm.address}")
    assert [each.split()[0] for each in server.calls] == ["POST", "GET", "DELETE"]
    assert json.loads(server.requests[2].content)["preconditions"] == {"uid": "u"}


def test_an_exception_of_the_program_is_not_hidden_by_a_failed_deletion() -> None:
    server = Server(claim(), READY, status(403, "Forbidden", "not you"))
    with server.client as client, pytest.raises(ZeroDivisionError) as raised, client.claims.claim("web"):
        raise ZeroDivisionError
    assert "not you" in raised.value.__notes__[0]


def test_a_claim_that_fails_is_deleted() -> None:
    server = Server(claim(), claim("Stalled"), status(404, "NotFound"))
    with server.client as client, pytest.raises(ClaimFailed), client.claims.claim("web"):
        pytest.fail("there is no VM")
    assert server.calls[2].startswith(f"DELETE {CLAIMS}/web-")


def test_a_claim_whose_creation_had_no_answer_is_found_again() -> None:
    server = Server(httpx.ReadError("lost"), status(409, "AlreadyExists"), READY, READY, answer({}))
    with server.client as client, client.claims.claim("web") as vm:
        assert vm.name == "vm"
    assert [each.split()[0] for each in server.calls] == ["POST", "POST", "GET", "GET", "DELETE"]


def test_a_claim_of_another_program_is_not_touched() -> None:
    server = Server(status(409, "AlreadyExists"))
    with server.client as client, pytest.raises(AlreadyExists), client.claims.claim("web", name="mine"):
        pytest.fail("it is not this program's")


def test_the_vm_of_another_claim_of_the_name_is_not_given() -> None:
    server = Server(claim(), claim("Ready", uid="theirs"), status(409, "Conflict", "the UID differs"))
    found = pytest.raises(ClaimFailed, match="was deleted, and there is another one")
    with server.client as client, found, client.claims.claim("web", name="mine"):
        pytest.fail("it is not this program's")


@pytest.mark.parametrize(
    "now",
    [claim("Stalled"), claim("Ready", finishedAt="2026-03-01T12:00:00Z"), claim("Ready", uid="theirs")],
    ids=["its VM is lost", "it has ended", "another one has its name"],
)
def test_a_claim_that_has_lost_its_vm_is_not_extended(now: Any) -> None:
    server = Server(claim(), READY, now, answer({}))
    with server.client as client, client.claims.claim("web") as vm, pytest.raises(ClaimFailed):
        vm.extend(3600)
    assert [each.method for each in server.requests] == ["POST", "GET", "GET", "DELETE"]


def test_a_claim_that_is_gone_at_the_end_is_no_error() -> None:
    server = Server(claim(), READY, status(409, "Conflict", "the UID differs"))
    with server.client as client, client.claims.claim("web"):
        pass


def test_a_conflict_of_an_apply_names_the_other_client() -> None:
    server = Server(status(409, "Conflict", 'conflict with "kubectl-patch": .spec.replicas'))
    with server.client as client, pytest.raises(Conflict, match="kubectl-patch"):
        client.pools.apply(pool(managedFields=[]))
    sent = json.loads(server.requests[0].content)
    assert "status" not in sent
    assert "managedFields" not in sent["metadata"]


async def test_the_async_client() -> None:
    server = Server(claim(), READY, answer({}))
    client = AsyncClient(connection=CONNECTION, transport=httpx.MockTransport(server), timeout_seconds=5)
    async with client, client.claims.claim("web", ttl_seconds=60) as vm:
        assert vm.address == "10.0.0.1"
    assert json.loads(server.requests[0].content)["spec"] == {"poolName": "web", "ttlSeconds": 60}
    assert server.calls[2].startswith("DELETE")
