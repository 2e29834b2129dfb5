"""The kubelet endpoint: who may call it, the query of `kubectl logs`, and what it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from controllers.shared.pod_claims import claim_metadata
from controllers.virtualnode.callers import TOKEN_REVIEWS, user_of
from controllers.virtualnode.endpoint import KubeletApp
from controllers.virtualnode.logs import LogReader, log_request
from controllers.virtualnode.pod import PodClaim, parse_claim
from controllers.warmpool.agent import AgentEndpoint, LogsRefused
from controllers.warmpool.backends import Health
from poolhouse.api.kinds import meta
from poolhouse.runtime.access_review import SUBJECT_ACCESS_REVIEWS
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import Resource
from poolhouse.service.callers import CLIENT_CERTIFICATE

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
API_SERVER = {"subject": ((("organizationName", "kubelet-callers"),), (("commonName", "kube-apiserver"),))}
USER = {"username": "kube-apiserver", "groups": ["kubelet-callers", "system:authenticated"]}

POD = {"metadata": {"name": "app", "namespace": "n", "uid": "p"}, "spec": {"nodeName": "poolhouse"}}
VM = {"metadata": {"name": "vm", "namespace": "n", "uid": "v", "labels": {meta.CLAIM_UID: "c"}}}
VMI = {"metadata": {"name": "vm", "namespace": "n", "uid": "i", "ownerReferences": [{"uid": "v", "controller": True}]}}


def a_claim(**status: Any) -> PodClaim:
    metadata = {**claim_metadata("app", "p"), "namespace": "n", "uid": "c"}
    found = parse_claim({"metadata": metadata, "status": {"phase": "Ready", **status}})
    assert found is not None
    return found


CLAIM = a_claim(vmRef={"name": "vm"})


@pytest.mark.parametrize(
    ("certificate", "user"),
    [
        pytest.param(API_SERVER, USER, id="the common name, in the groups of the organizations"),
        pytest.param({"subject": ((("organizationName", "system:masters"),),)}, None, id="no name"),
        pytest.param({}, None, id="no certificate"),
    ],
)
def test_the_user_of_a_certificate(certificate: Mapping[str, Any], user: Any) -> None:
    assert user_of(certificate) == user


@pytest.mark.parametrize(
    ("query", "request_"),
    [
        pytest.param({}, {}, id="all of it"),
        pytest.param({"follow": "true", "previous": "1"}, {"follow": True, "previous": True}, id="follow"),
        pytest.param({"tailLines": "0", "limitBytes": "9"}, {"tailLines": 0, "limitBytes": 9}, id="limits"),
        pytest.param(
            {"sinceSeconds": "60"}, {"sinceTime": {"seconds": int(NOW.timestamp()) - 60, "nanos": 0}}, id="since"
        ),
        pytest.param(
            {"sinceTime": "2026-01-01T12:00:00.5Z"},
            {"sinceTime": {"seconds": int(NOW.timestamp()), "nanos": 500_000_000}},
            id="since a time",
        ),
    ],
)
def test_the_query_of_kubectl(query: dict[str, str], request_: dict[str, Any]) -> None:
    assert log_request(query, NOW) == {"follow": False, "previous": False, "timestamps": False, **request_}


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": "-1"},
        {"tailLines": "x"},
        {"follow": "maybe"},
        {"sinceTime": "noon"},
        {"sinceTime": "2026-01-01T12:00:00"},
        {"sinceTime": "0001-01-01T00:00:00+23:59"},
        {"sinceSeconds": "9" * 15},
        {"sinceSeconds": "9" * 19},
        {"stream": "Stderr"},
    ],
    ids=str,
)
def test_an_invalid_query_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(query))}: "):
        log_request(query, NOW)


class Cluster:
    """What the endpoint asks an API server."""

    def __init__(self, *documents: dict[str, Any], allowed: bool = True) -> None:
        self.documents = documents or (POD, VM, VMI)
        self.allowed, self.asked = allowed, list[dict[str, Any]]()

    def now(self) -> datetime:
        return NOW

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        kinds = {"pods": POD, "virtualmachines": VM, "virtualmachineinstances": VMI}
        wanted = kinds[resource.plural]["metadata"]["uid"]  # type: ignore[index]
        for each in self.documents:
            if each["metadata"]["uid"] == wanted and each["metadata"]["name"] == name:
                return each
        raise NotFound("gone")

    async def request(self, method: str, path: str, *, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body["spec"])
        if path == TOKEN_REVIEWS:
            known = body["spec"]["token"] == "good"
            return {"status": {"authenticated": known, "user": {"username": "tester"} if known else {}}}
        assert path == SUBJECT_ACCESS_REVIEWS
        return {"status": {"allowed": self.allowed}}


class Agent:
    """An agent with a log, or with a refusal after the beginning of it."""

    def __init__(self, *chunks: bytes, refusal: LogsRefused | None = None, health: Health | None = None) -> None:
        self.chunks, self.refusal, self.health = chunks, refusal, health
        self.requests: list[dict[str, Any]] = []

    async def endpoint(self, vm: Any) -> AgentEndpoint | Health:
        return self.health or AgentEndpoint("10.0.0.9", 8200, grpc=True)

    async def read(self, endpoint: AgentEndpoint, request: dict[str, Any]) -> AsyncIterator[bytes]:
        self.requests.append(request)
        for each in self.chunks:
            yield each
        if self.refusal is not None:
            raise self.refusal


async def _stay() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


async def send_request(
    cluster: Cluster,
    agent: Agent,
    path: str = "/containerLogs/n/app/main",
    *,
    certificate: Any = API_SERVER,
    token: str = "",
    claims: tuple[PodClaim, ...] = (CLAIM,),
    method: str = "GET",
    receive: Callable[[], Awaitable[dict[str, Any]]] = _stay,
) -> list[dict[str, Any]]:
    reader = LogReader(cluster, "poolhouse", lambda uid: list(claims), agent.endpoint, agent.read)  # type: ignore[arg-type]
    app = KubeletApp(cluster, "poolhouse", reader)  # type: ignore[arg-type]
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"authorization", f"Bearer {token}".encode())] if token else [],
        "extensions": {CLIENT_CERTIFICATE: certificate},
    }
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


async def call(cluster: Cluster, agent: Agent, *arguments: Any, **named: Any) -> tuple[int, str]:
    sent = await send_request(cluster, agent, *arguments, **named)
    assert not sent[-1].get("more_body")
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:]).decode()


async def test_a_request_ends_when_its_client_is_gone() -> None:
    """Also while the API server does not say who may call: the process may have lost its Lease for the same reason."""
    asked = asyncio.Event()

    class Silent(Cluster):
        async def request(self, method: str, path: str, *, body: dict[str, Any]) -> dict[str, Any]:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    async def leave() -> dict[str, Any]:
        await asked.wait()
        return {"type": "http.disconnect"}

    assert await send_request(Silent(), Agent(), receive=leave) == []


async def test_the_log_is_sent_as_the_agent_sends_it() -> None:
    agent = Agent(b"one\n", b"two\n")
    assert await call(Cluster(), agent, "/containerLogs/n/app/main?tailLines=2") == (200, "one\ntwo\n")
    (request,) = agent.requests
    assert request.items() >= {"podUID": "p", "container": "main", "tailLines": 2}.items()


async def test_an_empty_log_is_a_success() -> None:
    assert await call(Cluster(), Agent()) == (200, "")


async def test_a_caller_needs_a_right_on_the_node() -> None:
    cluster = Cluster()
    assert (await call(cluster, Agent(), certificate={}))[0] == 401
    assert (await call(cluster, Agent(), certificate={}, token="bad"))[0] == 401
    assert (await call(cluster, Agent(), certificate={}, token="good"))[0] == 200
    assert cluster.asked[-1] == {
        "user": "tester",
        "resourceAttributes": {
            "verb": "get",
            "group": "",
            "version": "v1",
            "resource": "nodes",
            "subresource": "proxy",
            "name": "poolhouse",
        },
    }
    assert (await call(Cluster(allowed=False), Agent(b"secret")))[0] == 403


ELSEWHERE = {**POD, "spec": {"nodeName": "node-1"}}
ENDED = {**POD, "status": {"phase": "Succeeded"}}
TAKEN = {**VM, "metadata": {**VM["metadata"], "labels": {meta.CLAIM_UID: "other"}}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("cluster", "agent", "claims", "sentence"),
    [
        pytest.param(Cluster(VM), Agent(), (CLAIM,), "does not exist", id="no Pod"),
        pytest.param(Cluster(ELSEWHERE), Agent(), (CLAIM,), "is not on node poolhouse", id="another node's Pod"),
        pytest.param(Cluster(), Agent(), (), "has no VM now", id="a Pod that waits"),
        pytest.param(Cluster(), Agent(), (a_claim(phase="Released", vmRef={"name": "vm"}),), "has no VM", id="its end"),
        pytest.param(Cluster(ENDED), Agent(), (), "kubectl describe pod app shows how", id="a Pod that has ended"),
        pytest.param(Cluster(POD, VM), Agent(), (CLAIM,), "does not run any more", id="the VM is gone"),
        pytest.param(Cluster(POD, TAKEN, VMI), Agent(), (CLAIM,), "no longer that of Pod", id="a VM of another claim"),
        pytest.param(Cluster(), Agent(), (a_claim(instanceRef={"id": "i-1"}),), "EC2 instances", id="an EC2 instance"),
        pytest.param(
            Cluster(),
            Agent(health=Health("Unable", "NoAgent", "the VM has no agent")),
            (CLAIM,),
            "the VM has no agent",
            id="no agent",
        ),
        pytest.param(
            Cluster(), Agent(refusal=LogsRefused("UNIMPLEMENTED", "")), (CLAIM,), "offers no logs", id="no logs"
        ),
        pytest.param(
            Cluster(),
            Agent(refusal=LogsRefused("NOT_FOUND", "there is no container 'x'")),
            (CLAIM,),
            "there is no container",
            id="no such container",
        ),
    ],
)
async def test_why_there_is_no_log(cluster: Cluster, agent: Agent, claims: tuple[PodClaim, ...], sentence: str) -> None:
    found, text = await call(cluster, agent, claims=claims)
    assert found == 400  # The API server gives kubectl the sentence of no other code.
    assert sentence in text


@pytest.mark.parametrize("path", ["/exec/n/app/main", "/attach/n/app/main", "/portForward/n/app", "/metrics/resource"])
async def test_what_is_not_offered_is_answered_by_one_sentence(path: str) -> None:
    code, text = await call(Cluster(), Agent(), path, method="POST")
    assert code == 501
    status = json.loads(text)
    assert status["kind"] == "Status"
    assert "not available" in status["message"]


@pytest.mark.parametrize(
    "path", ["n/../main", "../app/main", "n/app/..", "n//main", "n/app", "n/app/main/x", "n/a b/c"]
)
async def test_a_path_must_have_the_names_of_objects(path: str) -> None:
    agent = Agent(b"secret")
    code, text = await call(Cluster(), agent, f"/containerLogs/{path}")
    assert (code, agent.requests) == (404, [])
    assert "must be /containerLogs/NAMESPACE/POD/CONTAINER" in text
