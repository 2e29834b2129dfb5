"""The steps of a claim, as frozen values. `plan` selects the next step, `apply` executes it."""

from dataclasses import dataclass
from typing import Literal

from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds.claim import ClaimStatus


@dataclass(frozen=True)
class ClaimEvent:
    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True)
class FindVMs:
    """Reads the VMs with the claim's UID from the API, not from the store."""


@dataclass(frozen=True)
class JoinWaitQueue:
    """Adds the claim to the queue for a ready VM of the pool."""


@dataclass(frozen=True)
class Requeue:
    """Waits for an event, or until `after_seconds` have passed."""

    after_seconds: float | None = None


@dataclass(frozen=True)
class CreateVM:
    """Creates a VM for the claim, from the pool's template and the claim's overrides."""

    pool: WarmPool
    name: str
    reason: str
    message: str


@dataclass(frozen=True)
class UpdateStatus:
    """Writes the claim's status. The write that adds a VM is the second compare-and-swap."""

    status: ClaimStatus
    event: ClaimEvent | None = None


@dataclass(frozen=True)
class _VMStep:
    vm: WarmVM


class ReserveVM(_VMStep):
    """Writes the claim's UID on the VM, the first compare-and-swap. The write fails if another claim was first."""


class MarkActivated(_VMStep):
    """Marks the VM before its activation. From then on, no pool gives the VM to another claim."""


class ActivateVM(_VMStep):
    """Unpauses or starts the VM."""


class CheckHealth(_VMStep):
    """Checks whether the VM is healthy. An agent also launches the claim's application."""


@dataclass(frozen=True)
class ReadApplication:
    """Reads what the claim's application needs of ConfigMaps and Secrets, before a VM is taken for it."""


class CheckApplication(_VMStep):
    """Asks the agent in the VM for the health of the claim's application."""


class TerminateApplication(_VMStep):
    """Asks the agent in the VM to stop the claim's application within its grace period."""


class PersonalizeVM(_VMStep):
    """Applies `spec.personalization` to the VM."""


class HandOverVM(_VMStep):
    """Marks the VM as in use."""


@dataclass(frozen=True)
class DeleteVM(_VMStep):
    reason: str


class DeleteUnrecordedVM(_VMStep):
    """Deletes a VM that no controller has given to the claim, if the pool's status says so at the API server too."""


@dataclass(frozen=True)
class DeleteClaim:
    """Deletes a finished claim, whose record nobody needs any more."""


Step = FindVMs | JoinWaitQueue | Requeue | CreateVM | UpdateStatus | ReadApplication | DeleteClaim | _VMStep
