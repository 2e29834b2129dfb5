"""What is said about credentials that cannot be used. Exec plugins are processes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from poolhouse.runtime.credentials import Credentials
from poolhouse.runtime.errors import Unreachable

EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}


def plugin(command: str, *arguments: str) -> dict[str, Any]:
    return {"exec": {**EXEC, "command": command, "args": list(arguments)}}


def printed(status: dict[str, Any]) -> dict[str, Any]:
    return plugin("echo", json.dumps({"apiVersion": EXEC["apiVersion"], "kind": "ExecCredential", "status": status}))


def authorization(directory: Path, user: dict[str, Any]) -> str | None:
    """The header of a kubeconfig with this user."""
    file = directory / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": user}]
    file.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "x"}))

    async def load() -> str | None:
        credentials = Credentials(file)
        await credentials.load()
        return await credentials.authorization()

    return asyncio.run(load())


@pytest.mark.parametrize(
    ("user", "said"),
    [
        pytest.param(plugin("no-such-plugin"), "No such file or directory: 'no-such-plugin'", id="it is missing"),
        pytest.param(plugin("false"), "process returned 1", id="it fails"),
        pytest.param(plugin("echo", "hello"), "failed to decode process output", id="it prints something else"),
        pytest.param(printed({}), "missing token or clientCertificateData", id="it prints no credentials"),
    ],
)
def test_an_exec_plugin_that_fails_is_named_and_nobody_is_anonymous(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], user: dict[str, Any], said: str
) -> None:
    with pytest.raises(Unreachable, match=f"^the program that prints the credentials of {tmp_path}/.*: .*{said}"):
        authorization(tmp_path, user)
    assert capfd.readouterr().err == "", "the reader of the client logs it too"


def test_the_token_of_an_exec_plugin_is_sent(tmp_path: Path) -> None:
    assert authorization(tmp_path, printed({"token": "t"})) == "Bearer t"


@pytest.mark.parametrize(("token", "header"), [("t\n", "Bearer t"), ("a\nb", None), ("a\u202eb", None)])
def test_a_token_that_no_header_can_have_is_refused(tmp_path: Path, token: str, header: str | None) -> None:
    if header:
        assert authorization(tmp_path, {"token": token}) == header
        return
    with pytest.raises(Unreachable, match=r"^the token of .*kubeconfig has a line feed"):
        authorization(tmp_path, {"token": token})
