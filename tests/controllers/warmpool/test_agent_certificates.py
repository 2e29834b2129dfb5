"""The certificates of agents: the reference agent and the controllers' client answer and ask nobody else."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controllers.warmpool.agent import AgentEndpoint, Certificates, NetworkAgentClient
from controllers.warmpool.agent_certificates import (
    AUTHORITY_LIFE,
    CA,
    CERTIFICATE,
    KEY,
    authority_of,
    client_certificates,
    renewal_due,
    secret,
    server_name,
)
from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.vm_manifest import build_vm
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_agent import Agent, AgentTLS
from poolhouse.service.certificates import KeyPair, new_ca, read_validity
from tests.agent.process import Agent as AgentProcess
from tests.controllers.warmpool.builders import a_pool, a_vm

NOW = datetime.now(UTC)
YEAR = timedelta(days=365)
AUTHORITY, OTHER_AUTHORITY = new_ca("agents", NOW, AUTHORITY_LIFE), new_ca("others", NOW, AUTHORITY_LIFE)
VM, OTHER_VM = a_vm("a"), a_vm("b")
RIGHT = client_certificates(VM, AUTHORITY, NOW)


def issued(authority: KeyPair = AUTHORITY, *, uid: str = VM.uid) -> Mapping[str, bytes]:
    data = secret(replace(VM, uid=uid), authority, NOW)["data"]
    return {name: b64decode(value) for name, value in data.items()}


def write(directory: Path, files: Mapping[str, bytes]) -> None:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)


@asynccontextmanager
async def agent_with_tls(directory: Path) -> AsyncIterator[AgentProcess]:
    agent = AgentProcess(directory, ["--tls-dir", str(directory / "tls")], {})
    await agent.start()
    try:
        yield agent
    finally:
        await agent.end()


def asking(port: int, certificates: Certificates | None) -> AgentEndpoint:
    return AgentEndpoint("127.0.0.1", port, grpc=True, tls=certificates is not None, certificates=certificates)


def shown_by(files: Mapping[str, bytes]) -> Certificates:
    """What a caller uses who verifies the agent of the VM, and has these files."""
    return Certificates(AUTHORITY.certificate, server_name(VM), files[CERTIFICATE], files[KEY])


@pytest.mark.parametrize(
    ("certificates", "verdict"),
    [
        pytest.param(RIGHT, "Healthy", id="a controller"),
        pytest.param(None, "Failed", id="a caller in plain text"),
        pytest.param(replace(RIGHT, certificate=None, key=None), "Failed", id="a caller without a certificate"),
        pytest.param(shown_by(issued(uid=OTHER_VM.uid)), "Failed", id="another VM with its own certificate"),
        pytest.param(shown_by(issued()), "Failed", id="the VM itself"),
        pytest.param(
            replace(client_certificates(VM, OTHER_AUTHORITY, NOW), ca=AUTHORITY.certificate),
            "Failed",
            id="a caller with a certificate of another authority",
        ),
    ],
)
async def test_the_agent_answers_only_controllers(
    tmp_path: Path, certificates: Certificates | None, verdict: str
) -> None:
    write(tmp_path / "tls", issued())
    async with agent_with_tls(tmp_path) as agent:
        assert (await NetworkAgentClient().health(asking(agent.port, certificates), 20)).verdict == verdict


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({**issued(uid=OTHER_VM.uid)}, id="another VM"),
        pytest.param({**issued(OTHER_AUTHORITY), CA: AUTHORITY.certificate}, id="a certificate of another authority"),
    ],
)
async def test_the_controllers_ask_no_other_server(tmp_path: Path, files: Mapping[str, bytes]) -> None:
    write(tmp_path / "tls", files)
    async with agent_with_tls(tmp_path) as agent:
        health = await NetworkAgentClient().health(asking(agent.port, RIGHT), 20)
    assert (health.verdict, health.reason) == ("Failed", "NoAnswer")


async def test_the_agent_uses_new_files_without_a_restart(tmp_path: Path) -> None:
    write(tmp_path / "tls", issued(OTHER_AUTHORITY))
    async with agent_with_tls(tmp_path) as agent:
        assert (await NetworkAgentClient().health(asking(agent.port, RIGHT), 20)).verdict == "Failed"
        write(tmp_path / "tls", issued())
        assert (await NetworkAgentClient().health(asking(agent.port, RIGHT), 20)).verdict == "Healthy"


async def test_an_agent_without_its_certificate_does_not_serve_plain_text(tmp_path: Path) -> None:
    write(tmp_path / "tls", {CA: AUTHORITY.certificate})
    with pytest.raises(AssertionError, match=r"cannot read tls\.crt, tls\.key and ca\.crt"):
        async with agent_with_tls(tmp_path):
            pass


def test_a_vm_keeps_its_certificate_as_long_as_the_authority_lasts() -> None:
    later = NOW + 3 * YEAR
    data = secret(VM, AUTHORITY, later)["data"]
    assert read_validity(b64decode(data[CERTIFICATE])).end == AUTHORITY.validity.end


FIRST = new_ca("first", NOW - 7 * YEAR, AUTHORITY_LIFE)


@pytest.mark.parametrize(
    ("authorities", "created", "expected"),
    [
        pytest.param([FIRST], NOW, FIRST, id="one authority"),
        pytest.param([FIRST, AUTHORITY], NOW + timedelta(minutes=1), AUTHORITY, id="a new VM has the newest"),
        pytest.param([FIRST, AUTHORITY], NOW - timedelta(minutes=1), FIRST, id="an older VM keeps the older"),
        pytest.param([AUTHORITY], NOW - timedelta(seconds=5), AUTHORITY, id="the clock of the API server is slow"),
    ],
)
def test_the_authority_of_a_vm(authorities: list[KeyPair], created: datetime, expected: KeyPair) -> None:
    assert authority_of(authorities, created) == expected


def test_a_new_authority_comes_years_before_the_end_of_the_old() -> None:
    assert renewal_due([], NOW)
    assert not renewal_due([AUTHORITY], NOW + 5 * YEAR)
    assert renewal_due([AUTHORITY], NOW + 6 * YEAR + timedelta(days=1))


def test_a_vm_has_the_disk_only_if_poolhouse_issues_the_certificate() -> None:
    def disks(tls: AgentTLS | None) -> list[str]:
        pool = a_pool()
        annotation = {meta.AGENT: Agent(tls=tls).model_dump_json(exclude_none=True)}
        template = {**pool.template, "metadata": {"annotations": annotation}}
        request = CreateRequest("ns", "web-a", "web", pool.uid, pool.owner, template, "hash")
        vmi = build_vm(request)["spec"]["template"]["spec"]
        named = {each["name"] for each in vmi.get("domain", {}).get("devices", {}).get("disks", ())}
        return [each["secret"]["secretName"] for each in vmi.get("volumes", ()) if each["name"] in named]

    assert disks(AgentTLS(issuer="Poolhouse")) == ["web-a-agent"]
    assert disks(AgentTLS(secret_name="own")) == disks(None) == []
