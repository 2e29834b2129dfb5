"""The claims of a user, and connections to their VMs."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from poolhouse.cli.claims import _extended, claim_row, extended_ttl
from poolhouse.cli.command_group import DefaultCommandGroup, misspelt
from poolhouse.cli.output import Failed
from poolhouse.cli.vm_streams import standard_input, stream_path, viewer_command

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def time(minutes: float) -> str:
    return (NOW + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def claim(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    metadata = {
        "namespace": "ci",
        "name": "desk",
        "creationTimestamp": "2026-03-01T11:00:00Z",
        "annotations": {"poolhouse.dev/requester": "alice"},
    }
    return {"metadata": metadata, "spec": spec or {}, "status": status}


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        pytest.param({}, ("Pending", None, None, None), id="new"),
        pytest.param(
            {"phase": "Ready", "vmRef": {"name": "ci-1"}, "addresses": ["10.0.0.9"], "expiresAt": time(125)},
            ("Ready", "ci-1", "10.0.0.9", "in 2h5m"),
            id="ready",
        ),
        pytest.param(
            {"phase": "Expired", "vmRef": {"name": "ci-1"}, "expiresAt": time(-5), "finishedAt": time(-5)},
            ("Expired", None, None, None),
            id="an ended claim has no VM and does not expire",
        ),
        pytest.param({"phase": "Ready", "expiresAt": time(-1)}, ("Ready", None, None, "now"), id="about to expire"),
        pytest.param({"instanceRef": {"id": "i-1"}}, ("Pending", "i-1", None, None), id="an EC2 instance"),
    ],
)
def test_the_row_of_a_claim(status: dict[str, Any], shown: tuple[str | None, ...]) -> None:
    row = claim_row(claim(**status), NOW)
    assert tuple(row[key] for key in ("phase", "vm", "address", "left")) == shown
    assert (row["requester"], row["age"]) == ("alice", "60m")


def test_the_row_of_a_claim_says_what_it_waits_for() -> None:
    waits = {"type": "Bound", "status": "False", "reason": "QuotaExceeded", "message": "alice has 2 VMs of 2"}
    assert claim_row(claim(phase="Queued", conditions=[waits]), NOW)["reason"] == "QuotaExceeded: alice has 2 VMs of 2"


@pytest.mark.parametrize(
    ("document", "ttl"),
    [
        pytest.param(claim(boundAt=time(0), expiresAt=time(10)), 600 + 3600, id="the limit came from the pool"),
        pytest.param(
            claim({"ttlSeconds": 9999}, boundAt=time(0), expiresAt=time(10)), 4200, id="the pool allowed less"
        ),
        pytest.param(claim({"ttlSeconds": 60}), 3660, id="it has no VM yet"),
    ],
)
def test_an_extension_adds_to_the_limit_that_applies(document: dict[str, Any], ttl: int) -> None:
    assert extended_ttl(document, 3600) == ttl


@pytest.mark.parametrize(
    ("document", "why"),
    [
        pytest.param(claim(phase="Released"), "desk is Released, so it has no VM to keep", id="ended"),
        pytest.param(claim(phase="Failed"), "desk is Failed", id="failed"),
        pytest.param(claim(phase="Releasing", boundAt=time(0), expiresAt=time(1)), "desk is Releasing", id="ending"),
        pytest.param(
            claim(phase="Ready", boundAt=time(0)), "desk does not expire: it has no time limit", id="for ever"
        ),
        pytest.param(claim(phase="Queued"), "desk does not expire: it has no VM yet", id="queued"),
    ],
)
def test_a_claim_that_cannot_be_extended(document: dict[str, Any], why: str) -> None:
    with pytest.raises(Failed, match=why):
        extended_ttl(document, 3600)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(time(10), time(70), "desk keeps its VM until 2026-03-01T13:10:00Z", id="as wanted"),
        pytest.param(
            time(10),
            time(30),
            "desk keeps its VM until 2026-03-01T12:30:00Z, which is the limit",
            id="less than wanted",
        ),
        pytest.param(None, "", "desk keeps its VM longer, once it has one", id="its time has not begun"),
    ],
)
def test_extend_prints_the_new_end(before: str | None, after: str, told: str) -> None:
    assert _extended("desk", before, after, 3600).startswith(told)


def test_an_extension_that_the_pool_forbids_fails() -> None:
    with pytest.raises(Failed, match=r"the end stays 2026-03-01T12:10:00Z: claimPolicy\.maxTTLSeconds"):
        _extended("desk", time(10), time(10), 3600)


@pytest.mark.parametrize(
    ("arguments", "ran"),
    [
        pytest.param([], "create None None", id="no argument"),
        pytest.param(["desk"], "create desk None", id="a name"),
        pytest.param(["--pool", "ci", "desk"], "create desk ci", id="options first"),
        pytest.param(["create", "list"], "create list None", id="the name of a command"),
        pytest.param(["list"], "list", id="a command"),
    ],
)
def test_a_claim_is_made_unless_a_command_is_named(arguments: list[str], ran: str) -> None:
    @click.group(cls=DefaultCommandGroup, default="create", no_args_is_help=False)
    def group() -> None:
        pass

    @group.command()
    @click.argument("name", required=False)
    @click.option("--pool")
    def create(name: str | None, pool: str | None) -> None:
        click.echo(f"create {name} {pool}")

    @group.command("list")
    def list_claims() -> None:
        click.echo("list")

    assert CliRunner().invoke(group, arguments).output == f"{ran}\n"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        pytest.param("lst", "list", id="a letter is missing"),
        pytest.param("ls", "list", id="two letters are missing"),
        pytest.param("lists", "list", id="a letter too many"),
        pytest.param("lsit", "list", id="the order of the letters"),
        pytest.param("list", None, id="the command"),
        pytest.param("lint", None, id="another letter: a job may have this name"),
        pytest.param("list-1", None, id="a name with a number"),
        pytest.param("build", None, id="another word"),
    ],
)
def test_a_word_that_is_nearly_a_command_is_misspelt(word: str, meant: str | None) -> None:
    assert misspelt(word, ["create", "list", "extend"]) == meant


@pytest.mark.parametrize(
    ("installed", "command"),
    [
        pytest.param({"remote-viewer", "vncviewer"}, ["/bin/remote-viewer", "vnc://127.0.0.1:5901"], id="virt-viewer"),
        pytest.param({"vncviewer"}, ["/bin/vncviewer", "127.0.0.1::5901"], id="TigerVNC"),
        pytest.param(set(), None, id="none"),
    ],
)
def test_which_viewer_is_started(installed: set[str], command: list[str] | None) -> None:
    assert viewer_command(5901, lambda name: f"/bin/{name}" if name in installed else None) == command


def test_the_path_is_kubevirts() -> None:
    path = "/apis/subresources.kubevirt.io/v1/namespaces/ci/virtualmachineinstances/ci-1/vnc"
    assert stream_path("ci", "ci-1", "vnc") == path


@pytest.mark.parametrize("kind", ["file", "/dev/null", "pipe"])
def test_the_console_reads_any_input(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = b"" if kind == "/dev/null" else b"poweroff\n"
    if kind == "pipe":
        given, keys = os.pipe()
        os.write(keys, typed)
        os.close(keys)
    else:
        path = Path(kind) if typed == b"" else tmp_path / "keys"
        if typed:
            path.write_bytes(typed)
        given = os.open(path, os.O_RDONLY)

    async def read() -> bytes:
        async with standard_input() as reader, asyncio.timeout(10):
            return await reader.read()

    with os.fdopen(given) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert asyncio.run(read()) == typed
