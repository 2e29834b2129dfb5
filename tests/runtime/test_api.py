"""Requests, answers, late answers and missing answers."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import ssl
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client import CollectorRegistry

from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Expired, NotFound, Unauthorized, Unreachable
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.resource import namespace_of_path
from poolhouse.runtime.transport import encode
from tests.ports import free_port
from tests.runtime.faulty_server import THINGS, Hangup, Request, Server, bookmark, status, thing, things


async def ok(request: Request) -> None:
    await request.answer(200, thing("a", 1))


# What is sent

CALLS: list[Any] = [
    pytest.param(lambda api: api.get(THINGS, "n", "a"), "GET", "/n/things/a", {}, None, id="get"),
    pytest.param(lambda api: api.create(THINGS, thing("a", 1)), "POST", "/n/things", {}, thing("a", 1), id="create"),
    pytest.param(
        lambda api: api.create(THINGS, thing("a", 1), dry_run=True),
        "POST",
        "/n/things",
        {"dryRun": "All"},
        thing("a", 1),
        id="dry run",
    ),
    pytest.param(
        lambda api: api.replace(THINGS, thing("a", 1), subresource="status"),
        "PUT",
        "/n/things/a/status",
        {},
        thing("a", 1),
        id="replace the status",
    ),
    pytest.param(
        lambda api: api.patch(THINGS, "n", "a", {"spec": {}}), "PATCH", "/n/things/a", {}, {"spec": {}}, id="patch"
    ),
    pytest.param(
        lambda api: api.patch(THINGS, "n", "a", {}, kind="apply", field_manager="m", force=True, dry_run=True),
        "PATCH",
        "/n/things/a",
        {"fieldManager": "m", "force": "true", "dryRun": "All"},
        {},
        id="apply",
    ),
    pytest.param(
        lambda api: api.delete(THINGS, "n", "a", uid="u", resource_version="7", propagation="Orphan", grace_seconds=0),
        "DELETE",
        "/n/things/a",
        {},
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u", "resourceVersion": "7"},
            "propagationPolicy": "Orphan",
            "gracePeriodSeconds": 0,
        },
        id="delete",
    ),
]


@pytest.mark.parametrize(("call", "method", "path", "query", "body"), CALLS)
async def test_each_call_sends_its_request(
    server: Server, api: Api, call: Any, method: str, path: str, query: dict[str, str], body: Any
) -> None:
    server.script = ok
    await call(api)
    (request,) = server.requests
    assert (request.method, request.path) == (method, "/apis/test.dev/v1/namespaces" + path)
    assert request.query == query
    assert (request.document if request.body else None) == body
    assert request.headers["authorization"] == "Bearer ours"
    assert request.headers["user-agent"] == "test"


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        ("json", "application/json-patch+json"),
        ("merge", "application/merge-patch+json"),
        ("apply", "application/apply-patch+yaml"),
    ],
)
async def test_a_patch_has_its_content_type(server: Server, api: Api, kind: Any, content_type: str) -> None:
    server.script = ok
    await api.patch(THINGS, "n", "a", {}, kind=kind)
    assert server.requests[0].headers["content-type"] == content_type


async def test_a_list_has_all_pages(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        more = {"": "x", "x": "y", "y": ""}[request.query.get("continue", "")]
        await request.answer(200, things(9, thing(more or "z", 1), more=more))

    server.script = script
    items, version = await api.list(THINGS, "n", label_selector="a=b,!c", field_selector="spec.x=1")
    assert [item["metadata"]["name"] for item in items] == ["x", "y", "z"]
    assert version == "9"
    assert all(request.query["labelSelector"] == "a=b,!c" for request in server.requests)
    assert all("resourceVersion" not in request.query for request in server.requests)
    server.requests.clear()
    await api.list(THINGS, "n", from_cache=True)
    versions = [(each.query.get("resourceVersion"), each.query.get("resourceVersionMatch")) for each in server.requests]
    assert versions == [("1", "NotOlderThan"), (None, None), (None, None)]


# Subresources of KubeVirt


async def test_a_subresource_accepts_any_type_and_an_empty_answer(server: Server, api: Api) -> None:
    async def accepted(request: Request) -> None:
        await request.answer(202, b"")

    server.script = accepted
    await api.put_subresource(THINGS, "n", "x", "start")
    assert await api.respond("PUT", "/x", body={}) == (202, b"")
    (request, _) = server.requests
    assert (request.method, request.path) == ("PUT", "/apis/test.dev/v1/namespaces/n/things/x/start")
    assert "*/*" in request.headers["accept"].split(", ")


# As whom


async def test_only_the_callers_token_is_sent(server: Server, api: Api) -> None:
    server.script = ok
    await api.with_token(lambda: "theirs").request("POST", "/x", body={})
    assert server.requests[0].headers["authorization"] == "Bearer theirs"


async def test_an_empty_token_does_not_send_our_own(server: Server, api: Api) -> None:
    server.script = ok
    await api.with_token(lambda: "").request("GET", "/x")
    assert server.requests[0].headers["authorization"].strip() == "Bearer"


async def test_a_401_reloads_the_kubeconfig(server: Server, tmp_path: Path) -> None:
    async def script(request: Request) -> None:
        fresh = request.headers["authorization"] == "Bearer fresh"
        await (ok(request) if fresh else request.answer(401, status(401, "Unauthorized")))

    server.script = script
    async with await server.connect(tmp_path) as api:
        with pytest.raises(Unauthorized):
            await api.get(THINGS, "n", "a")
        file = tmp_path / "kubeconfig"
        file.write_text(file.read_text().replace("ours", "fresh"))
        with pytest.raises(Unauthorized):
            await api.get(THINGS, "n", "a")
        assert len(server.requests) == 2, "the kubeconfig is not read after every refused call"
        await asyncio.sleep(60)
        await api.get(THINGS, "n", "a")
        with pytest.raises(Unauthorized):
            await api.with_token(lambda: "theirs").request("GET", "/x")
        assert len(server.requests) == 5, "the token of another user is not renewed"


async def test_redirects_are_not_followed(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        await request.answer(307, b"", {"Location": server.url + "/elsewhere"})

    server.script = script
    with pytest.raises(ApiError):
        await api.get(THINGS, "n", "a")
    assert len(server.requests) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "clusters: 3", "current-context: none\nclusters: []\ncontexts: []"])
async def test_the_error_names_an_invalid_kubeconfig(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(Unreachable, match="kubeconfig"):
        await Api.connect(file, user_agent="test")


async def test_the_error_names_a_missing_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="nowhere"):
        await Api.connect(tmp_path / "nowhere", user_agent="test")


async def test_the_error_says_that_there_is_no_kubeconfig_and_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Unreachable, match="service account"):
        await Api.connect(user_agent="test")


# What comes back


async def test_a_refusal_keeps_the_status_of_the_server(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        causes = [{"reason": "FieldValueRequired", "field": "spec.x", "message": "Required value"}]
        await request.answer(404, status(404, "NotFound", 'things "a" not found', name="a", causes=causes))

    server.script = script
    with pytest.raises(NotFound) as caught:
        await api.get(THINGS, "n", "a")
    assert str(caught.value) == (
        'GET /apis/test.dev/v1/namespaces/n/things/a: 404 NotFound: things "a" not found; spec.x: Required value'
    )
    assert caught.value.details["name"] == "a"


async def hang(request: Request) -> None:
    await request.hang()


async def hang_in_the_body(request: Request) -> None:
    await request.begin()
    await request.chunk(b'{"metadata":')
    await request.hang()


async def reset(request: Request) -> None:
    request.reset()
    raise Hangup


async def cut(request: Request) -> None:
    await request.raw(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"metadata":')
    raise Hangup


async def not_http(request: Request) -> None:
    await request.raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    raise Hangup


async def not_json(request: Request) -> None:
    await request.answer(200, b"<html>")


async def no_object(request: Request) -> None:
    await request.answer(200, [1])


@pytest.mark.parametrize("script", [hang, hang_in_the_body, reset, cut, not_http, not_json, no_object])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_incomplete_answer_is_unreachable_within_the_deadline(
    server: Server, api: Api, script: Any, method: str
) -> None:
    server.script = script
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unreachable) as caught:
        await api.request(method, "/x", body={} if method == "POST" else None)
    assert asyncio.get_running_loop().time() - began <= 15.1
    assert caught.value.message
    assert f"{method} /x" in str(caught.value)
    assert len(server.requests) == 1 or method == "GET", "a write is sent once"


async def test_a_refused_connection_is_unreachable(server: Server, api: Api) -> None:
    await server.stop()
    with pytest.raises(Unreachable):
        await api.get(THINGS, "n", "a")


async def test_a_request_may_have_its_own_deadline(server: Server, api: Api) -> None:
    server.script = hang
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unreachable, match="deadline"):
        await api.request("GET", "/x", timeout_seconds=1)
    assert asyncio.get_running_loop().time() - began == pytest.approx(1, abs=0.1)


async def slow(request: Request) -> None:
    await asyncio.sleep(10)
    await ok(request)


async def test_waiting_for_a_free_place_does_not_count_and_urgent_calls_do_not_wait(
    server: Server, tmp_path: Path
) -> None:
    server.script = slow
    async with await server.connect(tmp_path, max_connections=2) as api:
        loop = asyncio.get_running_loop()
        began = loop.time()
        calls = [asyncio.create_task(api.get(THINGS, "n", "a")) for _ in range(6)]
        await asyncio.sleep(1)
        assert len(server.requests) == 2
        await api.urgent.get(THINGS, "n", "a")
        assert loop.time() - began == pytest.approx(11, abs=0.5)
        await asyncio.gather(*calls)  # the last two began after 20 s, past the deadline of 15
        assert loop.time() - began == pytest.approx(30, abs=0.5)


@pytest.mark.parametrize(
    "get",
    [
        pytest.param(lambda api, name: api.get(THINGS, name, "a"), id="a namespace"),
        pytest.param(lambda api, name: api.with_token(lambda: name, name).get(THINGS, "n", "a"), id="a user"),
        pytest.param(lambda api, name: api.impersonating(name, ()).get(THINGS, "n", "a"), id="an impersonated user"),
    ],
)
async def test_calls_of_a_namespace_or_user_do_not_wait_for_all_of_another(
    get: Callable[[Api, str], Coroutine[Any, Any, Any]], server: Server, tmp_path: Path
) -> None:
    server.script = slow
    async with await server.connect(tmp_path, max_connections=3, max_per_namespace=2) as api:
        loop = asyncio.get_running_loop()
        began = loop.time()
        calls = [asyncio.create_task(get(api, "noisy")) for _ in range(20)]
        await asyncio.sleep(1)
        assert len(server.requests) == 2
        await get(api, "quiet")
        assert loop.time() - began == pytest.approx(11, abs=0.5)
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize(
    ("path", "namespace"),
    [
        ("/apis/kubevirt.io/v1/namespaces/shop/virtualmachines/web-1", "shop"),
        ("/api/v1/namespaces/shop/pods", "shop"),
        ("/api/v1/namespaces/shop", "shop"),
        ("/apis/kubevirt.io/v1/virtualmachines", ""),
        ("/readyz", ""),
        ("/version/namespaces/shop", ""),
    ],
)
def test_the_namespace_of_a_path(path: str, namespace: str) -> None:
    assert namespace_of_path(path) == namespace


async def test_a_cancelled_call_frees_its_place(server: Server, tmp_path: Path) -> None:
    server.script = hang
    async with await server.connect(tmp_path, max_connections=1) as api:
        call = asyncio.create_task(api.get(THINGS, "n", "a"))
        waiting = asyncio.create_task(api.get(THINGS, "n", "b"))
        await asyncio.sleep(1)
        call.cancel()
        waiting.cancel()
        await asyncio.gather(call, waiting, return_exceptions=True)
        server.script = ok
        await api.get(THINGS, "n", "c")


# Watches


async def watched(api: Api, **options: Any) -> list[tuple[str, str]]:
    got = []
    arguments = {"resource_version": "5", "timeout_seconds": 60} | options
    async with aclosing(api.watch(THINGS, "n", **arguments)) as events:
        async for kind, document in events:
            got.append((kind, document["metadata"]["resourceVersion"]))
    return got


async def test_a_watch_yields_events_until_the_server_ends_it(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        await request.begin()
        await request.event("ADDED", thing("a", 6))
        await request.event("BOOKMARK", bookmark(9))
        await request.end()

    server.script = script
    assert await watched(api, label_selector="x") == [("ADDED", "6"), ("BOOKMARK", "9")]
    assert server.requests[0].query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "60",
        "labelSelector": "x",
    }


async def test_an_event_with_410_is_expired(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        await request.begin()
        await request.event("ERROR", status(410, "Expired", "too old"))

    server.script = script
    with pytest.raises(Expired, match="too old"):
        await watched(api)


async def test_a_watch_without_headers_is_unreachable(server: Server, api: Api) -> None:
    server.script = hang
    with pytest.raises(Unreachable, match="deadline"):
        await watched(api)


async def test_a_watch_ends_soon_after_its_timeout(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        await request.begin()
        for version in range(6, 1000):
            await request.event("BOOKMARK", bookmark(version))
            await asyncio.sleep(1)

    server.script = script
    began = asyncio.get_running_loop().time()
    await watched(api)
    assert 60 <= asyncio.get_running_loop().time() - began <= 71


async def test_a_slow_consumer_does_not_end_the_watch(server: Server, api: Api) -> None:
    """The deadlines of the stream do not apply to its consumer."""

    async def script(request: Request) -> None:
        await request.begin()
        await request.event("ADDED", thing("a", 6))
        await request.event("ADDED", thing("b", 7))
        await request.end()

    server.script = script
    got = []
    async with aclosing(api.watch(THINGS, "n", resource_version="5", timeout_seconds=10)) as events:
        async for _, document in events:
            await asyncio.sleep(300)
            got.append(document["metadata"]["name"])
    assert got == ["a", "b"]


async def test_watches_do_not_use_up_the_connections_of_requests(server: Server, tmp_path: Path) -> None:
    async def script(request: Request) -> None:
        if request.watching:
            await request.begin()
            await request.hang()
        await ok(request)

    server.script = script
    async with await server.connect(tmp_path, max_connections=1) as api:
        tasks = [asyncio.create_task(watched(api)) for _ in range(5)]
        await asyncio.sleep(1)
        await api.get(THINGS, "n", "a")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_requests_are_counted_by_verb_and_code(server: Server, tmp_path: Path) -> None:
    registry = CollectorRegistry()

    async def script(request: Request) -> None:
        await request.answer(200 if request.method == "GET" else 409, status(409, "Conflict"))

    server.script = script
    async with await server.connect(tmp_path, metrics=Metrics(registry)) as api:
        await api.get(THINGS, "n", "a")
        with pytest.raises(ApiError):
            await api.create(THINGS, thing("a", 1))
        server.script = reset
        with pytest.raises(Unreachable):
            await api.delete(THINGS, "n", "a")

    def count(verb: str, code: str) -> float | None:
        labels = {"verb": verb, "resource": "things", "code": code}
        return registry.get_sample_value("kubevirt_poolhouse_api_requests_total", labels)

    assert count("get", "200") == 1
    assert count("create", "409") == 1
    assert count("delete", "0") == 1


async def test_any_text_in_a_body_arrives_unchanged(server: Server, api: Api) -> None:
    server.script = ok
    body = thing("a", 1, text='\u0000\u202e</script>"\n \U0001f600')
    await api.create(THINGS, body)
    assert json.loads(server.requests[0].body) == body


@pytest.mark.parametrize(
    ("body", "encoded"),
    [
        pytest.param({"b": 1, "a": {"d": 2, "c": [3]}}, '{"a":{"c":[3],"d":2},"b":1}', id="sorted keys"),
        pytest.param({"a": "x && <y>"}, r'{"a":"x \u0026\u0026 \u003cy\u003e"}', id="characters of HTML"),
        pytest.param({"a": "\u2028\u2029"}, r'{"a":"\u2028\u2029"}', id="line separators"),
        pytest.param({"a": "\u00e9\U0001f600\x7f\x01"}, '{"a":"\u00e9\U0001f600\x7f\\u0001"}', id="other characters"),
        pytest.param({"a": "\ud800"}, r'{"a":"\ud800"}', id="a lone surrogate"),
    ],
)
def test_a_body_has_the_bytes_of_gos_encoder(body: Any, encoded: str) -> None:
    assert encode(body) == encoded.encode()


# TLS


@pytest.fixture
def authority(tmp_path: Path) -> Callable[[], ssl.SSLContext]:
    """Makes the TLS context of a server with a new CA, and writes that CA to ca.crt in the test's directory."""

    def make() -> ssl.SSLContext:
        ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        ca = signed("ca", ca_key, "ca", ca_key, authority=True)
        leaf = signed("leaf", key, "ca", ca_key, authority=False)
        (tmp_path / "ca.crt").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
        (tmp_path / "tls.crt").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (tmp_path / "tls.key").write_bytes(key.private_bytes(*pem))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
        return context

    return make


def signed(name: str, key: Any, by: str, by_key: Any, *, authority: bool) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, by)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=authority,
                crl_sign=authority,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(by_key, hashes.SHA256())
    )


async def test_a_new_ca_is_loaded_without_a_restart(tmp_path: Path, authority: Any) -> None:
    """The CA of a cluster is rotated: its file changes, and the server has a certificate of the new CA."""
    async with Server(tls=authority(), port=free_port()) as old:
        old.script = ok
        async with await old.connect(tmp_path) as api:
            await api.get(THINGS, "n", "a")
            port = old.port
            await old.stop()
            context = authority()
            async with Server(tls=context, port=port) as new:
                new.script = ok
                with pytest.raises(Unreachable, match="certificate"):
                    await api.get(THINGS, "n", "a")
                await asyncio.sleep(60)
                await api.create(THINGS, thing("a", 1))
                assert len(new.requests) == 1


async def test_a_server_of_another_ca_is_not_trusted(tmp_path: Path, authority: Any) -> None:
    async with Server(tls=authority()) as server:
        server.script = ok
        authority()
        async with await server.connect(tmp_path) as api:
            await asyncio.sleep(60)
            with pytest.raises(Unreachable, match="certificate"):
                await api.get(THINGS, "n", "a")
            assert server.requests == []
