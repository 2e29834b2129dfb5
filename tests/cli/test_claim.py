"""Messages about claims, and login."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from apimachinery.unstructured import Json
from cli.claim import describe, ssh_arguments, unreachable
from cli.cluster import Cluster
from cli.output import Failed

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
            "mine: web-1 is yours: Warm after 34 ms (queue 1, bind 24, activate 0, check 9)",
            id="ready, and what each step took",
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
