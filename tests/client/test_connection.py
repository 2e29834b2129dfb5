"""Where the Python client finds the API server and its credentials."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import tomllib
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import yaml
from poolhouse_client.client import AsyncClient, Client, Unauthorized
from poolhouse_client.connection import ConfigError, connect

from poolhouse.service.certificates import new_ca, new_client_certificate, new_server_certificate

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]


def write(
    path: Path, *, user: Json | None = None, server: str = "https://one", name: str = "one", **given: Any
) -> Path:
    document = {
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}],
        "current-context": name,
        **given,
    }
    path.write_text(yaml.safe_dump(document))
    return path


def authorization(auth: httpx.Auth | None, *codes: int) -> list[str | None]:
    """The header of each request, if the server answers the earlier ones with these codes."""
    request = httpx.Request("GET", "https://one")
    if auth is None:
        return [None]
    flow = auth.sync_auth_flow(request)
    found = [next(flow).headers["Authorization"]]
    for code in codes:
        try:
            found.append(flow.send(httpx.Response(code, request=request)).headers["Authorization"])
        except StopIteration:
            break
    return found


def test_the_current_context_of_a_kubeconfig(tmp_path: Path) -> None:
    found = connect(write(tmp_path / "config", user={"token": "t"}))
    assert (found.server, found.namespace, authorization(found.auth)) == ("https://one", "ns-one", ["Bearer t"])


def test_the_first_file_of_kubeconfig_counts(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a"), write(tmp_path / "b", name="two", server="https://two")
    environment = {"KUBECONFIG": f"{first}:{tmp_path / 'absent'}:{second}"}
    assert connect(environment=environment).server == "https://one"
    assert connect(context="two", environment=environment).server == "https://two"


@pytest.mark.parametrize(
    ("command", "said"), [("no-such-plugin", "No such file or directory: 'no-such-plugin'"), ("false", "returned 1")]
)
def test_an_exec_plugin_that_fails_is_named_and_nobody_is_anonymous(tmp_path: Path, command: str, said: str) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": command}
    config = write(tmp_path / "config", user={"exec": plugin})
    with pytest.raises(ConfigError, match=f"^the program that prints the credentials of {config} has failed: .*{said}"):
        connect(config)


def test_a_token_file_is_relative_to_the_kubeconfig_and_read_again_after_401(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    auth = connect(write(tmp_path / "config", user={"tokenFile": "token"})).auth
    assert authorization(auth, 200) == ["Bearer old"]
    token.write_text("new\n")
    assert authorization(auth, 401) == ["Bearer old", "Bearer new"]
    assert authorization(auth, 401) == ["Bearer new"]


def test_an_exec_plugin_gives_the_token(tmp_path: Path) -> None:
    said = (
        "import json, os; asked = json.loads(os.environ['KUBERNETES_EXEC_INFO']);"
        "print(json.dumps({**asked, 'status': {'token': asked['kind']}}))"
    )
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": ["-c", said]}
    found = connect(write(tmp_path / "config", user={"exec": plugin}))
    assert authorization(found.auth) == ["Bearer ExecCredential"]


def test_a_context_that_does_not_exist_is_named_with_the_others(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no context 'three'; there are one"):
        connect(write(tmp_path / "config"), "three")


@pytest.mark.parametrize("text", ["", "[]", "a: ["])
def test_a_file_that_is_no_kubeconfig(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match="kubeconfig"):
        connect(path)


def test_the_client_has_the_version_of_the_project() -> None:
    files = (ROOT / "pyproject.toml", ROOT / "client" / "pyproject.toml")
    one, other = (tomllib.loads(path.read_text())["project"] for path in files)
    assert (one["version"], one["requires-python"]) == (other["version"], other["requires-python"])


class ApiServer:
    """Speaks TLS, wants a client certificate or the token `new`, and lists no pools."""

    def __init__(self, directory: Path) -> None:
        now, day = datetime.now(UTC), timedelta(days=1)
        self.ca = new_ca("ca", now, day)
        pairs = {
            "server": new_server_certificate(self.ca, "server", ["127.0.0.1"], now, day),
            "user": new_client_certificate(self.ca, "user", now, day),
        }
        for name, pair in pairs.items():
            (directory / f"{name}.crt").write_bytes(pair.certificate)
            (directory / f"{name}.key").write_bytes(pair.key)
        (directory / "ca.crt").write_bytes(self.ca.certificate)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(directory / "ca.crt"))
        tls.load_cert_chain(directory / "server.crt", directory / "server.key")
        tls.verify_mode = ssl.CERT_OPTIONAL
        self._http = HTTPServer(("127.0.0.1", 0), _Handler)
        self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._http.server_port}"
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> ApiServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == "Bearer new" or self.connection.getpeercert()
        body = json.dumps({"items": [], "metadata": {"resourceVersion": "1"}} if known else {"kind": "Status"})
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("user", "allowed"),
    [
        pytest.param({"tokenFile": "token"}, True, id="a token that is renewed after 401"),
        pytest.param({"client-certificate": "user.crt", "client-key": "user.key"}, True, id="a client certificate"),
        pytest.param({"token": "old"}, False, id="an old token"),
    ],
)
async def test_both_clients_connect_over_tls(user: Json, allowed: bool, tmp_path: Path) -> None:
    with ApiServer(tmp_path) as server:
        config = write(tmp_path / "config", user=user)
        document = yaml.safe_load(config.read_text())
        document["clusters"][0]["cluster"] = {"server": server.url, "certificate-authority": "ca.crt"}
        config.write_text(yaml.safe_dump(document))
        token = tmp_path / "token"
        for renewed in (False, True):  # once for each client
            token.write_text("old")
            context = pytest.raises(Unauthorized) if not allowed else nullcontext()
            if renewed:
                async with AsyncClient(kubeconfig=config, timeout_seconds=10) as client:
                    token.write_text("new")
                    with context:
                        assert await client.pools.list() == []
            else:
                with Client(kubeconfig=config, timeout_seconds=10) as client_of_threads:
                    token.write_text("new")
                    with context:
                        assert await asyncio.to_thread(client_of_threads.pools.list) == []


PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "cluster", "proxy"),
    [
        pytest.param("https://cluster.example", {}, PROXY, id="of the environment"),
        pytest.param("https://cluster.example", {"proxy-url": "http://other"}, "http://other", id="of the kubeconfig"),
        pytest.param("https://10.96.0.1", {}, None, id="no_proxy names the server's network"),
        pytest.param("https://localhost:6443", {"proxy-url": "http://other"}, "http://other", id="for a tunnel"),
    ],
)
def test_the_proxy(
    server: str, cluster: Json, proxy: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("no_proxy", "10.96.0.0/12")
    clusters = [{"name": "one", "cluster": {"server": server, **cluster}}]
    assert connect(write(tmp_path / "config", clusters=clusters)).proxy == proxy
