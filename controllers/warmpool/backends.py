"""The narrow interface to whatever holds machines: VirtualMachines (`vm`), or instances of EC2 (`ec2`).

What a call raises tells how to go on:

    Lost      somebody was first and nothing was written: read again and decide anew
    Unsure    no answer, so it may have been written: look (`find`, `read`) before anything else is tried
    Illegal   the change is none that a machine of that state may see: a mistake of ours, nothing was sent
    ApiError  it was refused and nothing was written (quota, a wrong template, too many requests)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from controllers.warmpool.warm_vm import NO_OWNER, Owner, StandbyMode, WarmVM
from kinds.warm_states import WarmState, may_follow, may_return
from kinds.warmpool import Readiness

Json = dict[str, Any]
Verdict = Literal["Healthy", "Failed", "Unable"]


class WriteConflict(Exception):
    """Somebody was first. Nothing was written."""


class OutcomeUnknown(Exception):
    """There was no answer: it was written or it was not."""


class InvalidTransition(Exception):
    """No machine of that state may become this."""


@dataclass(frozen=True)
class CreateRequest:
    """A machine to be made."""

    namespace: str
    name: str
    pool: str
    pool_uid: str
    owner: Owner
    """the pool, or the claim for which it is made"""
    template: Json
    """the pool's `template` (or `ec2`), with a claim's overrides in it"""
    template_hash: str
    placement: Json = field(default_factory=dict)
    """the one that was drawn, as the pool has it"""
    state: WarmState = WarmState.PROVISIONING
    standby: StandbyMode = "Running"
    claim_uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """What one write changes. What is None stays; a label or annotation whose value is None goes."""

    state: WarmState | None = None
    claim_uid: str | None = None
    """"" takes the claim away"""
    owner: Owner | None = None
    """who controls it from now on; NOBODY for nobody"""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Health:
    """What a check found. Unable says nothing about the machine: the check could not be carried out."""

    verdict: Verdict
    reason: str = ""
    message: str = ""


HEALTHY = Health("Healthy")


class Backend(Protocol):
    async def create(self, order: CreateRequest) -> WarmVM:
        """Makes it. One of that name that is there already is the answer if it is of the same claim, or of the same
        pool and unclaimed: an earlier call's answer was lost. Raises AlreadyExists for somebody else's."""

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        """Machines that carry this claim's UID, from the API itself."""

    async def read(self, machine: WarmVM) -> WarmVM | None:
        """The same machine (by UID) as it is now, from the API itself."""

    async def change(self, machine: WarmVM, change: Change) -> WarmVM:
        """One write, which is refused if the machine changed since it was read. With a new state goes its time."""

    async def check(self, machine: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        """Is it as a running machine should be? What asks it anything takes no longer than the time-out."""

    async def activate(self, machine: WarmVM) -> None:
        """Wakes it up: unpauses or starts it, if it is not awake."""

    async def stand_by(self, machine: WarmVM, mode: StandbyMode) -> None:
        """Pauses or stops it, if it is not yet so."""

    async def terminate(self, machine: WarmVM, reason: str) -> bool:
        """Deletes it. False if it changed since it was read, and nothing was done: look again. True also if it was
        gone."""


def check_transition(machine: WarmVM, change: Change) -> None:
    """Raises Illegal for a change that the states or the claims forbid."""
    if change.claim_uid and machine.claim_uid not in ("", change.claim_uid):
        raise InvalidTransition(f"{machine.name} has claim {machine.claim_uid}, and can't get claim {change.claim_uid}")
    after = change.state
    if after is None or may_follow(machine.state, after):
        return
    if after is WarmState.READY and may_return(machine.state, activated=machine.activated) and change.claim_uid == "":
        return
    was = machine.state.value if machine.state else "in no state"
    raise InvalidTransition(f"{machine.name} is {was}, which {after.value} can't follow")


def is_nobody(owner: Owner | None) -> bool:
    return owner == NO_OWNER
