"""`poolhouse api-docs` reads a page through a forwarded port, and sends the token to the webhook alone."""

from __future__ import annotations

import base64
import ssl
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.api_docs import read_page
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.output import Failed, Unreachable
from poolhouse.runtime.errors import Forbidden
from poolhouse.service.certificates import KeyPair, new_ca, new_server_certificate
from tests.serving import serving

NAME, NAMESPACE = "poolhouse-webhook", "here"
TOKEN = "Bearer t"


class Configurations:
    """The API server, as far as the command asks it."""

    def __init__(self, config: Json | None, token: str | None = TOKEN) -> None:
        self._config, self._token = config, token

    async def authorization(self) -> str | None:
        return self._token

    async def list(self, resource: Any, **_: Any) -> tuple[Sequence[Json], str]:
        if self._config is None:
            raise Forbidden("no", status=403)
        return [{"webhooks": [{"name": "pools.poolhouse.dev", "clientConfig": self._config}]}], ""


async def docs(request: web.Request) -> web.Response:
    """As the webhook answers. The defaulter asks for no token."""
    if request.headers.get("Authorization") == TOKEN:
        return web.Response(text="<h1>the webhook</h1>")
    if "Authorization" in request.headers:
        return web.json_response({"problems": [{"path": "", "message": "the token is unknown"}]}, status=401)
    return web.Response(text="<h1>the defaulter</h1>")


PAGE = web.get("/docs", docs)


@pytest.fixture(scope="module")
def authority() -> KeyPair:
    return new_ca("tests", datetime.now(UTC), timedelta(days=1))


@pytest.fixture(scope="module")
def tls(authority: KeyPair, tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    directory = tmp_path_factory.mktemp("tls")
    hosts = [f"{NAME}.{NAMESPACE}.svc"]
    pair = new_server_certificate(authority, NAME, hosts, datetime.now(UTC), timedelta(days=1))
    certificate, key = directory / "tls.crt", directory / "tls.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(certificate, key)
    return found


def config_of(authority: KeyPair) -> Json:
    bundle = base64.b64encode(authority.certificate).decode()
    return {"caBundle": bundle, "service": {"name": NAME, "namespace": NAMESPACE, "port": 443}}


def kubectl(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that runs the script, and writes down its arguments."""
    program, asked = directory / "kubectl", directory / "asked"
    program.write_text(
        f"#!{sys.executable}\nimport sys, time\nopen({str(asked)!r}, 'w').write(' '.join(sys.argv[1:]))\n{script}"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))
    return asked


def forwards(port: int) -> str:
    return f"print('Forwarding from 127.0.0.1:{port} -> 1', flush=True)\ntime.sleep(60)\n"


def read(api: Configurations, directory: Path, service: str, server: str | None = None) -> Any:
    cluster = Cluster(directory / "kubeconfig", "default", timeout_seconds=20)
    return read_page(api, cluster, service, server, None)


async def test_the_page_of_the_webhook_is_read_through_a_forwarded_port_with_the_token(
    authority: KeyPair, tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(PAGE, tls=tls) as port:
        asked = kubectl(tmp_path, forwards(port), monkeypatch)
        assert await read(Configurations(config_of(authority)), tmp_path, "webhook") == "<h1>the webhook</h1>"
        assert asked.read_text() == f"port-forward -n {NAMESPACE} svc/{NAME} :443"
        with pytest.raises(Failed, match="answers 401: the token is unknown"):
            await read(Configurations(config_of(authority), "Bearer other"), tmp_path, "webhook")


async def test_a_server_with_another_certificate_does_not_get_the_token(
    tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_ca("another", datetime.now(UTC), timedelta(days=1))
    async with serving(PAGE, tls=tls) as port:
        kubectl(tmp_path, forwards(port), monkeypatch)
        with pytest.raises(Unreachable, match=r"does not answer: .*certificate"):
            await read(Configurations(config_of(other)), tmp_path, "webhook")


async def test_the_defaulter_gets_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(PAGE) as port:
        asked = kubectl(tmp_path, forwards(port), monkeypatch)
        api = Configurations({"service": {"namespace": NAMESPACE}})
        assert await read(api, tmp_path, "defaulter") == "<h1>the defaulter</h1>"
        assert asked.read_text() == f"port-forward -n {NAMESPACE} svc/poolhouse-defaulter :http"


@pytest.mark.parametrize(
    ("api", "server", "said"),
    [
        pytest.param(Configurations({}, None), None, "your kubeconfig has none", id="a user with a certificate"),
        pytest.param(Configurations(None), None, "may not list webhook configurations", id="a user without the right"),
        pytest.param(Configurations({}), "http://127.0.0.1:1", "must begin with https://", id="no TLS"),
        pytest.param(
            Configurations({"caBundle": "no"}),
            None,
            "CA bundle of the webhook configuration is damaged",
            id="a damaged bundle",
        ),
    ],
)
async def test_the_command_says_why_there_is_no_page(
    api: Configurations, server: str | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(Failed, match=said):
        await read(api, tmp_path, "webhook", server)


async def test_the_error_of_kubectl_is_quoted(
    authority: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, "sys.exit('Error from server (Forbidden): pods is forbidden')", monkeypatch)
    with pytest.raises(Failed, match=r"port-forward to poolhouse-webhook failed: Error from server \(Forbidden\)"):
        await read(Configurations(config_of(authority)), tmp_path, "webhook")
