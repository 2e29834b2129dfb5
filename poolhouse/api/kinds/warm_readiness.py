"""`spec.readiness` and `spec.health` of a warm pool: when a VM can be handed over, and when it is replaced."""

from typing import Annotated

from pydantic import Field

from poolhouse.api.kinds.ec2 import Port
from poolhouse.api.kinds.model import ATOMIC_LIST, Count, Model, Seconds, Tuple, expected


class TcpProbe(Model):
    """Succeeds when the port accepts a connection."""

    port: Port
    """Port of the guest."""


class HttpProbe(Model):
    """Succeeds when the response has a status code below 400."""

    port: Port
    """Port of the guest."""
    path: Annotated[
        str, Field(max_length=1024, pattern="^/", json_schema_extra=expected("a path beginning with /"))
    ] = "/"
    """Path of the request."""


class Readiness(Model):
    """When a VM can be handed over: its condition Ready is True and all of these requirements are met."""

    guest_agent: bool = False
    """Whether the guest agent must be connected."""
    conditions: Annotated[
        Tuple[Annotated[str, Field(min_length=1, max_length=316)]], Field(max_length=32, json_schema_extra=ATOMIC_LIST)
    ] = ()
    """Conditions of the VirtualMachineInstance that must be True in addition to Ready. At most 32, because each check
    of a VM looks at all of them."""
    tcp: TcpProbe | None = None
    """A port of the guest that must accept connections."""
    http: HttpProbe | None = None
    """An HTTP request that the guest must answer."""
    min_ready_seconds: Count = 0
    """Seconds for which all requirements must be met before the VM can be handed over."""
    timeout_seconds: Seconds = 900
    """Seconds after which a VM that has not become ready is replaced."""


class Health(Model):
    """Health checks of waiting VMs."""

    period_seconds: Seconds = 10
    """Seconds between two checks."""
    timeout_seconds: Seconds = 5
    """Seconds after which a check without an answer fails."""
    failure_threshold: Annotated[Count, Field(ge=1)] = 3
    """Consecutive failures after which a VM is Unhealthy. The pool does not hand it over, and creates another VM."""
    terminate_threshold: Annotated[Count, Field(ge=1)] = 6
    """Further consecutive failures after which an Unhealthy VM is deleted. A check that could not be performed does not
    count."""
