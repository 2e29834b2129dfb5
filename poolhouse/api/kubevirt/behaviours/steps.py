"""The steps of a behaviour, which a test performs with one VM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.versions import OLDEST, FeatureGate, Release

Target = Literal["VM", "VMI", "Snapshot", "Restore"]


@dataclass(frozen=True)
class Refusal:
    code: int
    text: str
    """part of the message"""


@dataclass(frozen=True)
class Create:
    """Creates the VM, or with `target` VMI a VMI without a VM, a snapshot of the VM, or its restore. `spec` is merged
    into the smallest valid spec."""

    spec: Json = field(default_factory=dict)
    refused: Refusal | None = None
    target: Target = "VM"


@dataclass(frozen=True)
class Change:
    """Sends a JSON merge patch."""

    target: Target
    patch: Json
    refused: Refusal | None = None


@dataclass(frozen=True)
class Call:
    """Puts a subresource."""

    target: Target
    verb: str
    code: int = 202
    refused: Refusal | None = None
    accept: str = "application/json, */*"
    options: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Reaches:
    """Waits until the VM's printable status is this one. Until then, it may only be one of `through`."""

    status: str
    through: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shows:
    """Waits until each path of the object has its value. `ANY` is any value, and None is no value. The path
    `conditions.TYPE` is the condition's status and reason, as `True/Reason` or `True`."""

    target: Target
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Remember:
    """Remembers the VMI's UID for `Replaced`."""


@dataclass(frozen=True)
class Replaced:
    """Waits until the VM has another VMI, which runs."""


@dataclass(frozen=True)
class Delete:
    target: Target


@dataclass(frozen=True)
class Gone:
    """Waits until the object does not exist."""

    target: Target


@dataclass(frozen=True)
class Evict:
    """Requests the eviction of the VMI's launcher Pod, as a drain does."""

    refused: Refusal | None = None


@dataclass(frozen=True)
class Evacuates:
    """Waits until KubeVirt has created a migration that moves the VMI away from its node."""


Step = Create | Change | Call | Reaches | Shows | Remember | Replaced | Delete | Gone | Evict | Evacuates


class _Any:
    def __repr__(self) -> str:
        return "any value"


ANY = _Any()


@dataclass(frozen=True)
class Behaviour:
    name: str
    what: str
    why: str
    """what Poolhouse needs it for"""
    steps: tuple[Step, ...]
    guest: bool = False
    """whether a VM must run, which needs a node with capacity"""
    since: Release = OLDEST
    gate: FeatureGate | None = None
    live: bool = False
    """whether it needs `vmRolloutStrategy: LiveUpdate`"""


HALTED, MANUAL, ALWAYS, RERUN = ({"runStrategy": each} for each in ("Halted", "Manual", "Always", "RerunOnFailure"))
STARTING = ("Stopped", "Provisioning", "Starting", "WaitingForVolumeBinding")
STOPPING = ("Running", "Paused", "Stopping", "Terminating")


def domain(**fields: Any) -> Json:
    return {"template": {"spec": {"domain": fields}}}


def running(spec: Json | None = None) -> tuple[Step, ...]:
    """The steps that create a VM and wait until it runs."""
    return Create({**ALWAYS, **(spec or {})}), Reaches("Running", STARTING)
