"""The part of a warm pool that describes the agent in its VMs."""

from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationError

from poolhouse.api.kinds.application_sources import exactly_one_of
from poolhouse.api.kinds.ec2 import Port
from poolhouse.api.kinds.model import Model, Rule, has
from poolhouse.api.kinds.names import ObjectName

AGENT_DISK = "poolhouse-agent"
"""name of the disk with the certificate of an agent, its label and its serial number"""


class AgentTLS(Model):
    """TLS between the controllers and the agent. Give exactly one of `issuer` and `secretName`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one_of("issuer", "secretName"),
        Rule(
            cel="!has(self.serverName) || has(self.secretName)",
            message="is for secretName; certificates of Poolhouse name the VM",
            holds=lambda value: not has(value, "serverName") or has(value, "secretName"),
            field=".serverName",
        ),
    )

    issuer: Literal["Poolhouse"] | None = None
    """Poolhouse issues a certificate for each VM, and adds a disk `poolhouse-agent` to the VM that contains `tls.crt`,
    `tls.key` and `ca.crt`. The controllers call the agent with a certificate of the same authority."""
    secret_name: ObjectName | None = None
    """Secret of the same namespace with certificates of yours. Its entry `ca.crt` verifies the agents. With `tls.crt`
    and `tls.key`, the controllers prove to the agents who they are. The author of the pool needs the right to get the
    Secret."""
    server_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """DNS name in the certificates of the agents, with `secretName`. Defaults to the VM's name, so that no VM can pass
    for another."""


class Agent(Model):
    """Agent in each VM, which the template installs and starts."""

    port: Port = 8200
    """Port on which the agent serves gRPC, on the VM's address in the Pod network."""
    tls: AgentTLS | None = None
    """TLS. Without it, the controllers and the agent talk in plain text, applications with their Secrets included."""

    @property
    def has_issued_certificate(self) -> bool:
        return self.tls is not None and self.tls.issuer is not None


@lru_cache(maxsize=256)
def parse_agent(annotation: str) -> Agent | None:
    """The agent in the annotation of a VM. None without one that can be read: any user may write the annotation."""
    try:
        return Agent.model_validate_json(annotation) if annotation else None
    except ValidationError:
        return None
