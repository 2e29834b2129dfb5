"""Where the agent of a warm VM answers, and that with TLS no other server can answer in its place."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from controllers.warmpool.agent import AgentEndpoint, NetworkAgentClient
from controllers.warmpool.backends import Health
from controllers.warmpool.vm_agent import VMAgents
from poolhouse.api.kinds.warm_agent import Agent, AgentTLS, parse_agent
from poolhouse.runtime.errors import Forbidden
from poolhouse.service.certificates import KeyPair, new_ca, new_client_certificate, new_server_certificate
from tests.controllers.warmpool.agents import agent
from tests.controllers.warmpool.builders import a_vm

NOW, LIFE = datetime.now(UTC), timedelta(days=1)
CA, OTHER_CA = new_ca("agents", NOW, LIFE), new_ca("others", NOW, LIFE)
CONTROLLERS = new_client_certificate(CA, "controllers", NOW, LIFE)
VM = a_vm("m")


class Secrets:
    def __init__(self, **content: bytes) -> None:
        self.content = content

    async def get(self, resource: Any, namespace: str, name: str) -> Any:
        assert (namespace, name) == (VM.namespace, "certificates")
        if not self.content:
            raise Forbidden("no right")
        return {"data": {key.replace("_", "."): b64encode(value).decode() for key, value in self.content.items()}}


async def endpoint(secrets: Secrets, port: int = 8200, server_name: str | None = None) -> AgentEndpoint | Health:
    described = Agent(port=port, tls=AgentTLS(secret_name="certificates", server_name=server_name))
    return await VMAgents(secrets).endpoint_at(VM, described, "127.0.0.1")


@pytest.mark.parametrize(
    ("authority", "name", "server_name", "shown", "verdict"),
    [
        pytest.param(CA, VM.name, None, CONTROLLERS, "Healthy", id="the certificate of the VM"),
        pytest.param(CA, "agents.internal", "agents.internal", CONTROLLERS, "Healthy", id="a name for all VMs"),
        pytest.param(CA, "another-vm", None, CONTROLLERS, "Failed", id="the certificate of another VM"),
        pytest.param(OTHER_CA, VM.name, None, CONTROLLERS, "Failed", id="an unknown authority"),
        pytest.param(CA, VM.name, None, None, "Failed", id="the agent asks who calls"),
    ],
)
async def test_only_the_agent_with_the_right_certificate_is_asked(
    authority: KeyPair, name: str, server_name: str | None, shown: KeyPair | None, verdict: str
) -> None:
    served = new_server_certificate(authority, "agent", [name], NOW, LIFE)
    credentials = grpc.ssl_server_credentials([(served.key, served.certificate)], CA.certificate, True)
    own = {"tls_crt": shown.certificate, "tls_key": shown.key} if shown is not None else {}
    async with agent(credentials=credentials) as found:
        where = await endpoint(Secrets(ca_crt=CA.certificate, **own), found.port, server_name)
        assert isinstance(where, AgentEndpoint)
        assert (await NetworkAgentClient().health(where, 20)).verdict == verdict


@pytest.mark.parametrize(
    ("secrets", "verdict"),
    [
        pytest.param(Secrets(), "Unable", id="no right to read the Secret"),
        pytest.param(Secrets(tls_crt=b"x"), "Failed", id="no authority in the Secret"),
    ],
)
async def test_without_certificates_no_agent_is_asked(secrets: Secrets, verdict: str) -> None:
    found = await endpoint(secrets)
    assert isinstance(found, Health)
    assert (found.verdict, found.reason) == (verdict, "NoCertificates")
    assert "certificates" in found.message


async def test_without_tls_no_secret_is_read() -> None:
    found = await VMAgents(None).endpoint_at(VM, Agent(), "10.0.0.1")
    assert found == AgentEndpoint("10.0.0.1", 8200, grpc=True, namespace=VM.namespace)


@pytest.mark.parametrize("annotation", ["", "no JSON", "{'port': 1}", '{"port": 0}', "[]"])
def test_an_annotation_that_cannot_be_read_is_no_agent(annotation: str) -> None:
    assert parse_agent(annotation) is None


def test_the_annotation_of_a_pool_is_read() -> None:
    assert parse_agent(Agent().model_dump_json(exclude_none=True)) == Agent()
