"""The steps of a claim. Frozen values: what would be done can be asked, printed and compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from kinds.claim import ClaimStatus


@dataclass(frozen=True)
class ClaimEvent:
    """What people are told by an event."""

    reason: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True)
class FindVMs:
    """Ask the API, and not the store, which machines are the claim's."""


@dataclass(frozen=True)
class ReserveVM:
    """The first compare-and-swap: give the machine to the claim, or learn that somebody was first."""

    machine: WarmVM


@dataclass(frozen=True)
class CreateVM:
    """Create a machine for the claim, as its pool's and its overrides say."""

    pool: WarmPool
    name: str
    reason: str
    message: str


@dataclass(frozen=True)
class UpdateStatus:
    """Write the claim's status. With a machine in it that was not there before, this is the second compare-and-swap."""

    status: ClaimStatus
    news: ClaimEvent | None = None


@dataclass(frozen=True)
class MarkActivated:
    """Write down that the machine is about to be woken: from here on it is never anybody else's."""

    machine: WarmVM


@dataclass(frozen=True)
class ActivateVM:
    """Unpause or start it."""

    machine: WarmVM


@dataclass(frozen=True)
class CheckHealth:
    """Ask whether it is well."""

    machine: WarmVM


@dataclass(frozen=True)
class PersonalizeVM:
    """Make it the claimant's own, as far as it can be."""

    machine: WarmVM


@dataclass(frozen=True)
class HandOverVM:
    """It is in use from now on."""

    machine: WarmVM


@dataclass(frozen=True)
class DeleteVM:
    """Delete the machine."""

    machine: WarmVM
    reason: str


@dataclass(frozen=True)
class JoinWaitQueue:
    """Get in line."""


@dataclass(frozen=True)
class Requeue:
    """Nothing to do before something changes, or before so many seconds have passed."""

    seconds: float | None = None


Step = (
    FindVMs
    | ReserveVM
    | CreateVM
    | UpdateStatus
    | MarkActivated
    | ActivateVM
    | CheckHealth
    | PersonalizeVM
    | HandOverVM
    | DeleteVM
    | JoinWaitQueue
    | Requeue
)
