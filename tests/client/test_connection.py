"""Where the Python client finds the API server and its credentials."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from poolhouse.connection import ConfigError, connect

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
