"""The steps of a claim, as frozen values that can be compared and printed. `plan` picks the next; `apply` takes it."""

from dataclasses import dataclass
from typing import Literal

from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from kinds.claim import ClaimStatus


@dataclass(frozen=True)
class ClaimEvent:
    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True)
class FindVMs:
    """Ask the API, and not the store, which VMs have the claim's UID."""


@dataclass(frozen=True)
class JoinWaitQueue:
    """Wait for a ready VM of the pool."""


@dataclass(frozen=True)
class Requeue:
    """Do nothing until an event, or until so many seconds have passed."""

    after_seconds: float | None = None


@dataclass(frozen=True)
class CreateVM:
    """Create a VM for the claim, from its pool's template and the claim's overrides."""

    pool: WarmPool
    name: str
    reason: str
    message: str


@dataclass(frozen=True)
class UpdateStatus:
    """Write the claim's status. The write that adds a VM to it is the second compare-and-swap."""

    status: ClaimStatus
    event: ClaimEvent | None = None


@dataclass(frozen=True)
class _VMStep:
    vm: WarmVM


class ReserveVM(_VMStep):
    """The first compare-and-swap: write the claim's UID on the VM, or learn that another claim was first."""


class MarkActivated(_VMStep):
    """Write on the VM that it is about to be activated: from here on no pool gives it to another claim."""


class ActivateVM(_VMStep):
    """Unpause or start the VM."""


class CheckHealth(_VMStep):
    """Check whether the VM is healthy; an EC2 instance launches the claim's application for it."""


class PersonalizeVM(_VMStep):
    """Give the VM what `spec.personalization` asks for."""


class HandOverVM(_VMStep):
    """Write on the VM that it is in use."""


@dataclass(frozen=True)
class DeleteVM(_VMStep):
    reason: str


Step = FindVMs | JoinWaitQueue | Requeue | CreateVM | UpdateStatus | _VMStep
