"""The part of a warm pool that describes the agent in its VMs."""

from typing import Annotated

from pydantic import Field

from poolhouse.api.kinds.ec2 import Port
from poolhouse.api.kinds.model import Model
from poolhouse.api.kinds.names import ObjectName


class AgentTLS(Model):
    """TLS between the controllers and the agent."""

    secret_name: ObjectName
    """Secret of the same namespace. Its entry `ca.crt` verifies the agents. With `tls.crt` and `tls.key`, the
    controllers prove to the agents who they are. The author of the pool needs the right to get the Secret."""
    server_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """DNS name in the certificates of the agents. Defaults to the VM's name, so that no VM can pass for another."""


class Agent(Model):
    """Agent in each VM, which the template installs and starts."""

    port: Port = 8200
    """Port on which the agent serves gRPC, on the VM's address in the Pod network."""
    tls: AgentTLS | None = None
    """TLS. Without it, the controllers and the agent talk in plain text, applications with their Secrets included."""
