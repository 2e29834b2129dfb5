"""What is known of a claim at one moment."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from apimachinery.timestamps import parse_time
from controllers.shared.invalid_spec import describe, parse_status
from controllers.shared.sources import Source
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import CLAIM_KIND, Owner, WarmVM
from kinds import meta
from kinds.checks.claim import with_annotation_overrides
from kinds.claim import CLAIM, ClaimSpec, ClaimStatus, Overrides
from runtime.reflector import is_older
from runtime.resource import Key, Resource

Json = dict[str, Any]

CLAIMS = Resource.of(CLAIM)

FINISHED_PHASES = frozenset({"Released", "Expired", "Failed"})
"""A claim never leaves them."""

NO_OVERRIDES = Overrides()
BIND_SECONDS = 300.0
"""default for claims without a pool"""
NO_POOL_SECONDS = 10.0
"""A user may apply a claim a moment before its pool. If the pool does not exist after this time, the claim fails. The
claim's `bindTimeoutSeconds` overrides this time."""


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
    """the user who made it, recorded by admission"""
    invalid_spec: str = ""
    """why the spec cannot be used"""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def owner(self) -> Owner:
        return Owner(CLAIM_KIND, self.name, self.uid)

    @property
    def finished(self) -> bool:
        return self.status.phase in FINISHED_PHASES

    @property
    def vm_uid(self) -> str:
        """UID of the VM that the status has."""
        if self.status.instance_ref is not None:
            return self.status.instance_ref.id
        return self.status.vm_ref.uid if self.status.vm_ref is not None else ""

    @property
    def overrides(self) -> Overrides:
        return self.spec.overrides or NO_OVERRIDES


def parse_claim(document: Json) -> Claim:
    metadata = document["metadata"]
    invalid_spec = ""
    try:
        with_spec = {**document, "spec": document.get("spec") or {}}
        spec = ClaimSpec.model_validate(with_annotation_overrides(with_spec)["spec"])
    except ValidationError as error:  # stored by another release
        spec = ClaimSpec()
        invalid_spec = describe(error)
    return Claim(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        spec=spec,
        status=parse_status(ClaimStatus, document),  # without it, the VM is found by its label
        created_at=metadata.get("creationTimestamp") or "",
        deleting=metadata.get("deletionTimestamp") is not None,
        requester=(metadata.get("annotations") or {}).get(meta.REQUESTER, ""),
        invalid_spec=invalid_spec,
    )


SOURCE = Source(CLAIMS, parse_claim, {"uid": lambda claim: [claim.uid]})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something was not done."""

    reason: str
    message: str
    final: bool = False
    """the same request will never be accepted"""


@dataclass(frozen=True, slots=True)
class Timeline:
    """When this process saw the steps of the claim. Steps that another process took are not measured."""

    observed: datetime | None = None
    dequeued: datetime | None = None
    """the first VM was about to be reserved or created"""
    reserved: datetime | None = None
    """the first compare-and-swap succeeded"""
    bound: datetime | None = None
    """the second compare-and-swap succeeded, where more steps followed"""
    activated: datetime | None = None
    position_written: datetime | None = None


@dataclass(frozen=True)
class ClaimSnapshot:
    claim: Claim
    pool: WarmPool | None = None
    no_pool: Failure | None = None
    """why no pool serves it"""
    vms: tuple[WarmVM, ...] = ()
    """VMs with the claim's UID"""
    vms_known: bool = False
    """no other VM can have the claim's UID"""
    candidate: WarmVM | None = None
    """the VM that the claim would get now, after the claims that are before it in the queue"""
    position: int = 0
    """in the wait queue, from 1; 0 outside it"""
    queue_length: int = 0
    over_quota: Failure | None = None
    pool_full: bool = False
    health: Health | None = None
    """of the claim's VM, found by the step before"""
    failure: Failure | None = None
    """why the last write was refused, until it is tried again"""
    not_personalized: tuple[Failure, ...] | None = None
    """what personalization failed to give; None where this process has not tried it"""
    deletion: Failure | None = None
    timeline: Timeline = Timeline()

    @property
    def bound_vm(self) -> WarmVM | None:
        """The VM that the claim's status has, while it exists."""
        return next((vm for vm in self.vms if vm.uid == self.claim.vm_uid and not vm.deleting), None)

    @property
    def extra_vms(self) -> tuple[WarmVM, ...]:
        """VMs with the claim's UID that the claim's status does not have."""
        return tuple(vm for vm in self.vms if vm.uid != self.claim.vm_uid and not vm.deleting)

    @property
    def on_empty(self) -> str:
        return self.claim.spec.on_empty or (self.pool.spec.claim_policy.on_empty if self.pool else "ColdStart")

    @property
    def bind_deadline(self) -> datetime:
        """When the claim fails if no VM is bound to it."""
        own = self.claim.spec.bind_timeout_seconds
        seconds = float(own) if own is not None else BIND_SECONDS
        if own is None:
            seconds = float(self.pool.spec.claim_policy.bind_timeout_seconds) if self.pool else NO_POOL_SECONDS
        # A second attempt has as long as the first: a VM that took long to fail must not fail the claim.
        bound = next((c for c in self.claim.status.conditions if c.type == "Bound"), None)
        since = (
            bound.last_transition_time if bound is not None and self.claim.status.attempts else self.claim.created_at
        )
        return time_or_min(since) + timedelta(seconds=seconds)


def time_or_min(text: str | None) -> datetime:
    """A time of the API; the earliest datetime where there is none."""
    return parse_time(text) if text else datetime.min.replace(tzinfo=UTC)


MAX_CACHE_LAG_SECONDS = 15.0
"""A store that has not shown a write by then may never do so, because the write was undone: the API is asked."""


@dataclass
class ClaimRecord:
    """What this process knows of one claim beyond the stores. A later leader needs none of it. It keeps it from
    acting on a state that it has just changed itself, and says where the API must be asked because it did not see what
    happened. Dropped as a whole when the claim is gone or finished (`Allocator.forget`)."""

    vms_known: bool = False
    """no VM can carry the claim's UID except those that the stores or this record have"""
    stale: bool = False
    """the claim must be read from the API"""
    claim: Claim | None = None
    """after our last write"""
    vms: dict[str, tuple[WarmVM, float]] = field(default_factory=dict)
    """by UID: after our last write or read, and when that was"""
    reserved: dict[str, Key] = field(default_factory=dict)
    """by UID: VMs that no other claim gets while our reservation of them is not seen"""
    rejected: dict[str, Key] = field(default_factory=dict)
    """by UID: VMs whose reservation was refused, and which are not tried again before another one was"""
    creating: set[tuple[str, str]] = field(default_factory=set)
    """(pool UID, name) of VMs that were asked for"""
    placement_draws: int = 0
    """refused creations: each draws another placement"""
    unconfirmed: str = ""
    """name of a VM whose creation was not answered"""
    health: Health | None = None
    """found by the last step, and dropped with the next one"""
    failure: Failure | None = None
    retry_at: float = 0.0
    """until then what failed is not tried again"""
    failures: int = 0
    """in a row"""
    personalization: tuple[str, tuple[Failure, ...]] | None = None
    """UID of the VM that was personalized, and what it did not get"""
    deletion: Failure | None = None
    """why this process deleted the claim's VM"""
    timeline: Timeline = field(default_factory=Timeline)

    def latest(self, cached: Claim) -> Claim:
        """The claim after our last write, until the store shows that or a later version."""
        same = self.claim is not None and self.claim.uid == cached.uid
        if self.claim is not None and same and is_older(cached.resource_version, self.claim.resource_version):
            return self.claim
        self.claim = None
        return cached

    def remember(self, vm: WarmVM, now: float) -> None:
        self.vms[vm.uid] = (vm, now)

    def listed(self, vms: Iterable[WarmVM], now: float) -> None:
        """These are all VMs that carry the claim's UID."""
        self.vms = {vm.uid: (vm, now) for vm in vms}
        self.vms_known = True

    def merged(self, cached: Iterable[WarmVM], now: float) -> tuple[WarmVM, ...]:
        """The claim's VMs: as the store shows them, or after our last write where that is later."""
        merged = {vm.uid: vm for vm in cached}
        for uid, (vm, at) in list(self.vms.items()):
            shown = merged.get(uid)
            if shown is not None and not is_older(shown.resource_version, vm.resource_version):
                # What this process deleted stays deleted, also while the store shows its last version.
                if not vm.deleting or shown.deleting or shown.resource_version != vm.resource_version:
                    del self.vms[uid]
                    continue
            elif shown is None and now - at > MAX_CACHE_LAG_SECONDS:
                del self.vms[uid]
                self.vms_known = False
                continue
            merged[uid] = replace(vm, vmi=None, node=None)
        return tuple(merged.values())

    def vm_deleted(self, uid: str) -> None:
        """The store has shown that the VM is gone."""
        self.vms.pop(uid, None)
        self.reserved.pop(uid, None)
        self.vms_known = False
