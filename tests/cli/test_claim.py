"""Messages about claims, and login."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli import claim as module
from poolhouse.cli import release
from poolhouse.cli.claim import claim, describe, ssh_arguments, unreachable
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.output import Failed
from poolhouse.cli.output import Unreachable as Late
from poolhouse.runtime.errors import AlreadyExists, Forbidden, NotFound, Unavailable, Unreachable
from tests.waiting import PATIENCE_SECONDS

TIMINGS = {"queuedMs": 1, "bindMs": 24, "activateMs": 0, "checkMs": 9, "totalMs": 34}
READY: Json = {"phase": "Ready", "vmRef": {"name": "web-1"}, "launchType": "Warm", "timings": TIMINGS}
HELD = {"type": "Bound", "status": "False", "reason": "PoolNotFound", "message": "there is none"}

UNWELL = {"type": "Ready", "status": "False", "reason": "NoAnswer", "message": "web-1 does not answer"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, "mine: Pending", id="not looked at"),
        pytest.param(
            {"phase": "Pending", "conditions": [HELD]}, "mine: Pending: PoolNotFound: there is none", id="held"
        ),
        pytest.param(
            {"phase": "Bound", "conditions": [UNWELL, {**HELD, "status": "True"}]},
            "mine: Bound: NoAnswer: web-1 does not answer",
            id="what its machine is not",
        ),
        pytest.param(
            {"phase": "Failed", "conditions": [UNWELL, HELD]}, "mine: Failed: PoolNotFound: there is none", id="first"
        ),
        pytest.param({"phase": "Queued", "queuePosition": 3}, "mine: Queued, position 3 in the queue", id="in line"),
        pytest.param(
            READY,
            "mine: web-1 is yours: Warm after 34 ms (1 ms in the queue, 24 ms to assign the VM, 9 ms to check it)",
            id="ready, and what each step took",
        ),
        pytest.param(
            {**READY, "timings": {}, "conditions": [UNWELL]},
            "mine: web-1 is yours: Warm; NoAnswer: web-1 does not answer",
            id="ready once, and not now",
        ),
        pytest.param(
            {**READY, "timings": {}, "addresses": ["10.0.0.1"], "expiresAt": "2026-11-21T12:00:00.123456Z"},
            "mine: web-1 is yours at 10.0.0.1: Warm, until 2026-11-21T12:00:00Z",
            id="where and for how long",
        ),
    ],
)
def test_a_claim(status: Json, expected: str) -> None:
    assert describe("mine", status) == expected


@pytest.mark.parametrize(
    ("release_after", "expected"),
    [(False, "not Ready after 6 s, `poolhouse release mine` cancels it"), (True, "after 6 s, so it is released")],
)
def test_what_happens_to_a_claim_that_is_not_ready_in_time(release_after: bool, expected: str) -> None:
    with pytest.raises(Late, match=expected):
        module._report("mine", {}, "text", 6.0, release_after)


@pytest.mark.parametrize(
    ("ttl", "expires", "expected"),
    [
        pytest.param(3600.0, "2026-11-21T13:00:00.000000Z", "", id="the time that the user asked for"),
        pytest.param(None, "2026-11-21T13:00:00.000000Z", "", id="no time was asked for"),
        pytest.param(7200.0, None, "", id="the claim does not expire"),
        pytest.param(
            7200.0,
            "2026-11-21T13:00:00.000000Z",
            "mine: it has its VM for 3600 s instead of 7200: claimPolicy.maxTTLSeconds of the pool\n",
            id="the pool allows less",
        ),
    ],
)
def test_a_user_learns_that_the_pool_shortens_the_time_of_a_claim(
    capsys: pytest.CaptureFixture[str], ttl: float | None, expires: str | None, expected: str
) -> None:
    status = {**READY, "boundAt": "2026-11-21T12:00:00.000000Z", "expiresAt": expires}
    module._warn_of_limit("mine", status, ttl)
    assert capsys.readouterr().err == expected


def test_a_command_runs_through_virtctl_or_at_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(Path("config"), "team", "prod")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failed, match="has no address, and virtctl is not installed"):
        ssh_arguments(cluster, "ci", READY)
    ssh, virtctl = tmp_path / "ssh", tmp_path / "virtctl"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port, there = server.getsockname()[1], {**READY, "addresses": ["127.0.0.1"]}
        with pytest.raises(Failed, match="ssh is not installed; log in as ci at 127"):
            ssh_arguments(cluster, "ci", there, port=port)
        ssh.touch(0o755)
        options = ["-o", "HostKeyAlias=web-1.team", "-o", "ConnectTimeout=15"]
        expected = [str(ssh), "-p", str(port), *options, "ci@127.0.0.1"]
        assert ssh_arguments(cluster, "ci", there, port=port) == expected
    virtctl.touch(0o755)
    proxy = f"{virtctl} port-forward --namespace team --context prod --stdio=true vm/web-1 22"
    assert ssh_arguments(cluster, "ci", READY, "make test") == [
        *(str(ssh), "-p", "22", *options, "-o", "StrictHostKeyChecking=accept-new"),
        *("-o", f"ProxyCommand={proxy}", "ci@web-1", "make test"),
    ]


def test_a_closed_port_is_reported_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert unreachable("127.0.0.1", port, 5) == ""
    assert unreachable("127.0.0.1", port, 1) == "Connection refused in 1 s"


@dataclass
class LossyApi:
    """An API server whose answers are lost: `answers` has what happens to each creation, and to each release."""

    answers: list[str]
    stored: dict[str, Json] = field(default_factory=dict)
    late: dict[str, Json] = field(default_factory=dict)
    """claims that are created after the first release"""
    released: list[str] = field(default_factory=list)

    async def list(self, *_: Any) -> None:
        raise Forbidden("pools are not for this user", status=403)

    async def create(self, _: Any, body: Json) -> Json:
        answer, name = self.answers.pop(0), body["metadata"]["name"]
        if answer == "never arrived":
            raise Unreachable("connection reset", call="POST claims")
        if name in self.stored:
            raise AlreadyExists("exists", status=409)
        stored = {**body, "metadata": {**body["metadata"], "uid": "u"}, "status": READY}
        if answer == "carried out later":
            self.late[name] = stored
            raise Unreachable("timeout", call="POST claims")
        self.stored[name] = stored
        if answer == "lost":
            raise Unavailable("timeout", status=504)
        return stored

    async def get(self, _: Any, namespace: str, name: str) -> Json:
        return self.stored[name]

    async def patch(self, _: Any, namespace: str, name: str, change: Json) -> None:
        if self.answers and self.answers.pop(0) == "refused":
            raise Unavailable("busy", status=503)
        if name not in self.stored:
            self.stored |= self.late
            raise NotFound("not found", status=404)
        self.released.append(name)


OTHERS: Json = {"metadata": {"name": "mine", "namespace": "team", "uid": "theirs"}, "status": READY}


async def test_a_claim_of_somebody_else_is_not_yours() -> None:
    """Its user may have deleted a claim that waits, and another user has taken the name."""
    ours = {"metadata": {**OTHERS["metadata"], "uid": "ours"}, "status": {"phase": "Queued"}}
    api = LossyApi([], {"mine": OTHERS})
    with pytest.raises(Failed, match="the claim mine was deleted, and there is another one"):
        await module._wait_until_settled(api, ours, time.monotonic() + PATIENCE_SECONDS, lambda line: None)


@pytest.mark.parametrize(
    "left",
    [
        pytest.param([], id="it is deleted after its end"),
        pytest.param([{**OTHERS, "status": {"phase": "Queued"}}], id="another one has its name"),
    ],
)
async def test_a_released_claim_that_is_gone_has_ended(left: list[Json]) -> None:
    class Gone:
        async def patch(self, *_: Any) -> Json:
            return {"metadata": {"uid": "ours"}}

        async def get(self, *_: Any) -> Json:
            if not left:
                raise NotFound("not found", status=404)
            return left[0]

    end = time.monotonic() + PATIENCE_SECONDS
    assert await release.release_all(Gone(), "team", ["mine"], end) == {"mine": "Released"}


def connected_to(api: Any, monkeypatch: pytest.MonkeyPatch, directory: Path) -> list[str]:
    """Lets commands use the API instead of a cluster. Returns the options that they need for it."""

    @asynccontextmanager
    async def connected() -> AsyncIterator[Any]:
        yield api

    async def connect(_: Cluster) -> Any:
        return connected()

    monkeypatch.setattr(Cluster, "connect", connect)
    kubeconfig = directory / "config"
    kubeconfig.write_text("{apiVersion: v1, kind: Config}")
    return ["--kubeconfig", str(kubeconfig)]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    for each in (module, release):
        monkeypatch.setattr(each, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(release, "RELEASE_SECONDS", 0.2)
    monkeypatch.setattr(module, "ssh_arguments", lambda *_: ["/bin/sh", "-c", "exit 7"])
    return CliRunner()


@pytest.mark.parametrize(
    ("name", "answers", "code", "text", "released"),
    [
        pytest.param([], ["given"], 7, "", 1, id="no fault"),
        pytest.param([], ["lost", "given"], 7, "", 1, id="the answer to the creation is lost"),
        pytest.param([], ["never arrived", "given"], 7, "", 1, id="the creation does not arrive"),
        pytest.param([], ["lost", "never arrived"], 3, "connection reset", 1, id="the repetition does not arrive"),
        pytest.param(
            [],
            ["never arrived", "carried out later", "late"],
            3,
            "timeout",
            1,
            id="carried out after the command gave up",
        ),
        pytest.param([], ["given", "refused"], 7, "", 1, id="a release is tried again"),
        pytest.param([], ["given", *["refused"] * 10_000], 7, "not released: the API", 0, id="a late release ends"),
        pytest.param(["mine"], ["lost"], 3, "`poolhouse release mine` releases it", 0, id="a name that others may use"),
        pytest.param(["mine"], ["given"], 7, "", 1, id="a given name"),
    ],
)
def test_a_claim_is_released_at_the_end(
    runs: CliRunner,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: list[str],
    answers: list[str],
    code: int,
    text: str,
    released: int,
) -> None:
    api = LossyApi([*answers])
    options = connected_to(api, monkeypatch, tmp_path)
    found = runs.invoke(claim, [*name, "--ssh", "ci", "--rm", "--exec", "true", *options])
    assert (found.exit_code, len(api.released)) == (code, released), found.output
    assert text in found.output


def test_a_claim_that_cannot_be_released_is_named_with_its_namespace(
    runs: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class OneClaim:
        async def patch(self, _: Any, namespace: str, name: str, __: Json) -> Json:
            if name == "mine":
                return {"metadata": {"uid": "ours"}}
            path = f"/apis/poolhouse.dev/v1alpha1/namespaces/{namespace}/virtualmachineclaims/{name}"
            raise NotFound("not found", status=404, call=f"PATCH {path}", details={"name": name})

        async def get(self, *_: Any) -> Json:
            return {"metadata": {"uid": "ours"}, "status": {"phase": "Released"}}

    options = connected_to(OneClaim(), monkeypatch, tmp_path)
    found = runs.invoke(release.release, ["mine", "other", "-n", "team", *options])
    assert "mine is Released" in found.output
    assert "other: not found in namespace team" in found.output
