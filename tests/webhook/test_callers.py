"""Callers without the API server's certificate are refused or limited before their bodies are parsed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from poolhouse.service.callers import CLIENT_CERTIFICATE
from poolhouse.service.certificates import KeyPair, new_ca, new_client_certificate, new_server_certificate
from poolhouse.service.request_body import MAX_BODY_BYTES, MAX_HELD_BYTES, RequestRefused
from tests.service.test_request_body import whole
from tests.service.test_server import serving
from tests.webhook.builders import disk, review, vm
from webhook.admission import Admission
from webhook.app import create_app
from webhook.callers import (
    UNKNOWN_BODY_BYTES,
    UNKNOWN_CONNECTIONS_PER_ADDRESS,
    UNKNOWN_IN_FLIGHT,
    AdmissionBodies,
    ApiServerCertificate,
    UnknownCallers,
    connection_limit,
)
from webhook.defaulting import NoDefaulter
from webhook.metrics import Metrics
from webhook.parts import WebhookParts
from webhook.rate_limit import RateLimiter

JSON = [(b"content-type", b"application/json")]
NOW, YEAR = datetime.now(UTC), timedelta(days=365)


def scope(name: str = "", address: str = "10.0.0.1") -> dict[str, Any]:
    certificate = {"subject": ((("commonName", name),),)} if name else {}
    return {"headers": JSON, "client": (address, 1), "extensions": {CLIENT_CERTIFICATE: certificate}}


@pytest.mark.parametrize(
    ("names", "name", "known"),
    [
        pytest.param({"api"}, "api", True, id="the name"),
        pytest.param({"api", "b"}, "b", True, id="one of several names"),
        pytest.param({"api"}, "jane", False, id="a user's certificate of the same authority"),
        pytest.param({}, "any", True, id="any certificate of an authority of its own"),
        pytest.param({}, "", False, id="no certificate"),
    ],
)
def test_the_api_server_is_known_by_its_certificate(names: set[str], name: str, known: bool) -> None:
    assert ApiServerCertificate(frozenset(names)).matches(scope(name)) == known


async def status(bodies: AdmissionBodies, given: dict[str, Any], size: int = 10) -> int:
    try:
        async with bodies.read(given, whole(b"x" * size)):
            return 200
    except RequestRefused as refused:
        return refused.status


@pytest.mark.parametrize(
    ("unknown", "name", "size", "expected"),
    [
        pytest.param("refuse", "api", MAX_BODY_BYTES - 1, 200, id="the API server may send the largest body"),
        pytest.param("refuse", "", 10, 401, id="a caller without a certificate is refused"),
        pytest.param("refuse", "jane", 10, 401, id="a caller with another name is refused"),
        pytest.param("limit", "", UNKNOWN_BODY_BYTES - 1, 200, id="an unknown caller may send a small body"),
        pytest.param("limit", "", UNKNOWN_BODY_BYTES, 413, id="an unknown caller may not send a large body"),
    ],
)
async def test_bodies(unknown: UnknownCallers, name: str, size: int, expected: int) -> None:
    bodies = AdmissionBodies(ApiServerCertificate(frozenset({"api"}), unknown))
    assert await status(bodies, scope(name), size) == expected


async def test_an_unknown_address_has_a_rate_and_the_api_server_has_none() -> None:
    certificate = ApiServerCertificate(unknown="limit")
    bodies = AdmissionBodies(certificate, rate_limiter=RateLimiter(per_second=0.001, burst=3))
    assert [await status(bodies, scope()) for _ in range(5)] == [200, 200, 200, 429, 429]
    assert await status(bodies, scope(address="10.0.0.2")) == 200
    assert [await status(bodies, scope("api")) for _ in range(9)] == [200] * 9


async def test_unknown_callers_have_a_number_of_requests_in_progress() -> None:
    bodies = AdmissionBodies(ApiServerCertificate(unknown="limit"))
    async with AsyncExitStack() as stack:
        for number in range(UNKNOWN_IN_FLIGHT):
            await stack.enter_async_context(bodies.read(scope(address=f"10.0.1.{number}"), whole(b"{}")))
        assert await status(bodies, scope()) == 429
        assert await status(bodies, scope("api")) == 200
    assert await status(bodies, scope()) == 200


async def test_without_certificates_one_address_may_hold_half_of_the_memory() -> None:
    bodies, large = AdmissionBodies(), MAX_BODY_BYTES - 1
    async with AsyncExitStack() as stack:
        for _ in range(MAX_HELD_BYTES // 2 // large):
            await stack.enter_async_context(bodies.read(scope(), whole(b"x" * large)))
        assert await status(bodies, scope(), large) == 429
        assert await status(bodies, scope(address="10.0.0.2"), large) == 200


@asynccontextmanager
async def webhook(tmp_path: Path, certificate: ApiServerCertificate | None, ca: KeyPair) -> AsyncIterator[int]:
    """The webhook over HTTPS, without a defaulter or an API server."""
    pair = new_server_certificate(ca, "webhook", ("127.0.0.1",), NOW, YEAR)
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key), ("ca.crt", ca.certificate)):
        (tmp_path / name).write_bytes(content)
    unused: Any = None
    parts = WebhookParts(
        unused,
        Admission(defaulting=NoDefaulter(), checks=()),
        unused,
        Metrics(CollectorRegistry(), ["VirtualMachine"]),
        reviews=AdmissionBodies(certificate),
    )
    limit = connection_limit(certificate)
    async with serving(create_app(parts), tmp_path, clients=tmp_path / "ca.crt", connections=limit) as (port, _):
        yield port


def trust(tmp_path: Path, pair: KeyPair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    if pair is not None:
        (tmp_path / "client.crt").write_bytes(pair.certificate)
        (tmp_path / "client.key").write_bytes(pair.key)
        context.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
    return context


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_only_the_holder_of_the_certificate_gets_an_answer(tmp_path: Path, path: str) -> None:
    ca = new_ca("test", NOW, YEAR)
    pairs = [None, *(new_client_certificate(ca, name, NOW, YEAR) for name in ("jane", "api"))]
    async with webhook(tmp_path, ApiServerCertificate(frozenset({"api"})), ca) as port:
        found = []
        for pair in pairs:
            async with httpx.AsyncClient(verify=trust(tmp_path, pair)) as client:
                found.append((await client.post(f"https://127.0.0.1:{port}{path}", json=review(vm()))).status_code)
                assert (await client.get(f"https://127.0.0.1:{port}/healthz")).status_code == 200
        assert found == [401, 401, 200]


async def test_open_connections_of_unknown_callers_leave_some_for_the_api_server(tmp_path: Path) -> None:
    ca = new_ca("test", NOW, YEAR)
    async with webhook(tmp_path, ApiServerCertificate(), ca) as port:
        context, writers = trust(tmp_path), []
        for _ in range(UNKNOWN_CONNECTIONS_PER_ADDRESS):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writers.append(writer)
        async with httpx.AsyncClient(verify=trust(tmp_path)) as unknown:
            with pytest.raises(httpx.TransportError):
                await unknown.get(f"https://127.0.0.1:{port}/healthz")
        own = trust(tmp_path, new_client_certificate(ca, "api", NOW, YEAR))
        async with httpx.AsyncClient(verify=own) as client:
            answer = await client.post(f"https://127.0.0.1:{port}/validate", json=review(vm(disk())))
            assert answer.status_code == 200
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        async with httpx.AsyncClient(verify=trust(tmp_path)) as unknown:
            assert (await unknown.get(f"https://127.0.0.1:{port}/healthz")).status_code == 200
