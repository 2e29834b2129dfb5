"""What is known of a claim at one moment."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from controllers.claim.overrides import Wanted, wanted
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import CLAIM_KIND, Owner, WarmVM
from kinds import meta
from kinds.claim import ClaimSpec, ClaimStatus
from runtime.resource import Resource

Json = dict[str, Any]

CLAIMS = Resource("poolhouse.dev", "v1alpha1", "virtualmachineclaims", CLAIM_KIND)

FINISHED_PHASES = frozenset({"Released", "Expired", "Failed"})
"""Phases that a claim never leaves."""

BIND_SECONDS = 300.0
"""for claims whose pool is not known and that don't say it themselves"""
POOLLESS_SECONDS = 10.0
"""A claim may be applied a moment before its pool. One that waits longer waits for nothing, unless it says so."""


@dataclass(frozen=True)
class Claim:
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    spec: ClaimSpec
    status: ClaimStatus
    created_at: str = ""
    """creationTimestamp, which sorts as text"""
    deleting: bool = False
    requester: str = ""
    """who made it, as admission has seen it"""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """those of the document: what kind of machine is wanted"""
    problem: str = ""
    """why its spec is none"""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def owner(self) -> Owner:
        return Owner(CLAIM_KIND, self.name, self.uid)

    @property
    def over(self) -> bool:
        return self.status.phase in FINISHED_PHASES

    @property
    def vm_uid(self) -> str:
        """The machine that it was given, as far as is written down."""
        if self.status.instance_ref is not None:
            return self.status.instance_ref.id
        return self.status.vm_ref.uid if self.status.vm_ref is not None else ""

    @cached_property
    def wanted(self) -> Wanted:
        return wanted(self.spec.overrides, self.annotations)


def read_claim(document: Json) -> Claim:
    """The view of a VirtualMachineClaim."""
    metadata = document["metadata"]
    annotations = metadata.get("annotations") or {}
    problem = ""
    try:
        spec = ClaimSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:  # another release's
        spec = ClaimSpec()
        problem = "; ".join(f"spec.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    try:
        status = ClaimStatus.model_validate(document.get("status") or {})
    except ValidationError:
        status = ClaimStatus()  # its machine is found by its label
    return Claim(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        spec=spec,
        status=status,
        created_at=metadata.get("creationTimestamp") or "",
        deleting=metadata.get("deletionTimestamp") is not None,
        requester=annotations.get(meta.REQUESTER, ""),
        annotations={key: annotations[key] for key in (meta.INSTANCE_TYPE, meta.IMAGE_ID) if key in annotations},
        problem=problem,
    )


def by_uid(c: Claim) -> Iterator[Hashable]:
    yield c.uid


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something was not done, for people and for the next decision."""

    reason: str
    message: str
    final: bool = False
    """the same will never be accepted"""


@dataclass(frozen=True, slots=True)
class Timeline:
    """When this process saw what of the claim. What another process saw is not known, and not measured."""

    seen: datetime | None = None
    popped: datetime | None = None
    taken: datetime | None = None
    """the first compare-and-swap was won"""
    bound: datetime | None = None
    """the second one too, where more was to be done after it"""
    awake: datetime | None = None
    """its machine was told to wake up"""
    placed: datetime | None = None
    """its place in line was written down"""


@dataclass(frozen=True)
class ClaimSnapshot:
    claim: Claim
    pool: WarmPool | None = None
    """the one that serves it"""
    absent: Failure | None = None
    """why no pool serves it"""
    machines: tuple[WarmVM, ...] = ()
    """those that carry its UID"""
    certain: bool = False
    """no other machine can carry its UID: there was no moment at which one could have been given to it unseen"""
    candidate: WarmVM | None = None
    """the one that it would get now, others' turns respected"""
    place: int = 0
    """how many will have been served when it is, if it waits; 0 if it doesn't"""
    waiting: int = 0
    """how many wait for machines of the pool"""
    over_limit: Failure | None = None
    """its requester has enough already"""
    full: bool = False
    """the pool may not have one more machine"""
    health: Health | None = None
    """what a check of its machine has just found"""
    trouble: Failure | None = None
    """why no machine could be made for it just now"""
    refused: tuple[Failure, ...] | None = None
    """what the claim wishes of its machine and did not get; None where that was not tried, or by another process"""
    ended: Failure | None = None
    """why the machine that it had was ended, where we did it"""
    marks: Timeline = Timeline()

    @property
    def mine(self) -> WarmVM | None:
        """The machine that is written down as the claim's, while it exists."""
        return next((m for m in self.machines if m.uid == self.claim.vm_uid and not m.deleting), None)

    @property
    def others(self) -> tuple[WarmVM, ...]:
        """Machines that took its UID and are not written down."""
        return tuple(m for m in self.machines if m.uid != self.claim.vm_uid and not m.deleting)

    @property
    def on_empty(self) -> str:
        return self.claim.spec.on_empty or (self.pool.spec.claim_policy.on_empty if self.pool else "ColdStart")

    @property
    def bind_by(self) -> datetime:
        """When it is given up if no machine is bound to it."""
        own = self.claim.spec.bind_timeout_seconds
        seconds = float(own) if own is not None else BIND_SECONDS
        if own is None:
            seconds = float(self.pool.spec.claim_policy.bind_timeout_seconds) if self.pool else POOLLESS_SECONDS
        # A second attempt has as long as the first: nobody should fail because a machine took long to fail.
        said = next((c for c in self.claim.status.conditions if c.type == "Bound"), None)
        since = said.last_transition_time if said is not None and self.claim.status.attempts else self.claim.created_at
        return moment(since) + timedelta(seconds=seconds)


def moment(text: str | None) -> datetime:
    """A time as the API writes it."""
    return datetime.fromisoformat(text) if text else datetime.min.replace(tzinfo=UTC)


def text(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
