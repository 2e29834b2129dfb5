"""The view of a claim, and the snapshot from which its next step is planned."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from controllers.shared.conditions import find_condition
from controllers.shared.invalid_spec import describe, parse_status
from controllers.shared.pod_claims import pod_of
from controllers.shared.sources import Source
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_pool import WarmPool, named_by
from controllers.warmpool.warm_vm import CLAIM_KIND, Owner, WarmVM
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.checks.claim import with_annotation_overrides
from poolhouse.api.kinds.claim import CLAIM, NO_POOL_SECONDS, ClaimSpec, ClaimStatus, Overrides
from poolhouse.api.kinds.resource_types import CLAIM_PHASES
from poolhouse.api.kinds.warm_readiness import Health as HealthSpec
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.resource import Resource
from poolhouse.runtime.store import Store

CLAIMS = Resource.of(CLAIM)

NO_OVERRIDES = Overrides()


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
    """the creationTimestamp; its text form sorts by time"""
    deleting: bool = False
    requester: str = ""
    """the user who created the claim, recorded by admission"""
    invalid_spec: str = ""
    """why the spec is invalid, or an empty string"""
    pod: Owner | None = None
    """the Pod for which the controllers made the claim"""
    lost_pod: bool = False
    """whether `pod` is not the controller of the claim any more"""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def owner(self) -> Owner:
        return Owner(CLAIM_KIND, self.name, self.uid)

    @property
    def finished(self) -> bool:
        return self.status.phase in CLAIM_PHASES.terminal

    @property
    def ended(self) -> bool:
        """Whether the claim gets no VM any more. A finalizer may keep a deleted claim for any time."""
        return self.finished or self.deleting

    @property
    def notes(self) -> dict[str, str]:
        """Annotations of the claim's VM, by which people find who uses it."""
        pod = {meta.POD_NAME: self.pod.name, meta.POD_UID: self.pod.uid} if self.pod is not None else {}
        return {meta.CLAIM_NAME: self.name, **pod}

    @property
    def application_owner(self) -> Owner:
        """The object whose name and UID the agent gets with the application: the Pod of the claim, or the claim."""
        return self.pod if self.pod is not None else self.owner

    @property
    def vm_uid(self) -> str:
        """The UID of the VM in the claim's status."""
        if self.status.instance_ref is not None:
            return self.status.instance_ref.id
        return self.status.vm_ref.uid if self.status.vm_ref is not None else ""

    @property
    def overrides(self) -> Overrides:
        return self.spec.overrides or NO_OVERRIDES


def parse_claim(document: Json) -> Claim:
    metadata, pod = document["metadata"], pod_of(document)
    invalid_spec = ""
    try:
        with_spec = {**document, "spec": document.get("spec") or {}}
        spec = ClaimSpec.model_validate(with_annotation_overrides(with_spec)["spec"])
    except ValidationError as error:  # another release stored the claim
        spec = ClaimSpec()
        invalid_spec = describe(error)
    return Claim(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        spec=spec,
        status=parse_status(ClaimStatus, document),  # with an invalid status, the VM is found by its label
        created_at=metadata.get("creationTimestamp") or "",
        deleting=metadata.get("deletionTimestamp") is not None,
        requester=(metadata.get("annotations") or {}).get(meta.REQUESTER, ""),
        invalid_spec=invalid_spec,
        pod=Owner("Pod", pod.name, pod.uid, "v1") if pod is not None else None,
        lost_pod=pod is not None and pod.lost,
    )


SOURCE = Source(CLAIMS, parse_claim, {"uid": lambda claim: [claim.uid]})


def claim_of(claims: Store[Claim], vm: WarmVM) -> Claim | None:
    return named_by(vm, vm.claim_uid, claims)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request or a step failed."""

    reason: str
    message: str
    final: bool = False
    """whether the same request would always fail"""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The times at which this process observed the steps of the claim. Steps of other processes have no time."""

    observed: datetime | None = None
    dequeued: datetime | None = None
    """before the first VM is reserved or created"""
    reserved: datetime | None = None
    """after the first compare-and-swap"""
    bound: datetime | None = None
    """after the second compare-and-swap, if more steps follow"""
    activated: datetime | None = None
    position_written: datetime | None = None


@dataclass(frozen=True)
class ClaimSnapshot:
    claim: Claim
    pool: WarmPool | None = None
    no_pool: Failure | None = None
    """why no pool can serve the claim"""
    vms: tuple[WarmVM, ...] = ()
    """VMs with the claim's UID"""
    unrecorded: frozenset[str] = frozenset()
    """UIDs of `vms` that no controller has given to the claim, as far as this process knows"""
    vms_known: bool = False
    """whether `vms` has all VMs with the claim's UID"""
    candidate: WarmVM | None = None
    """the VM that the claim would get now, after the claims before it in the queue"""
    position: int = 0
    """the position in the wait queue, from 1; 0 outside the queue"""
    queue_length: int = 0
    over_quota: Failure | None = None
    pool_full: bool = False
    health: Health | None = None
    """the result of the previous step's health check"""
    failure: Failure | None = None
    """why the last write was refused, until the next attempt is due"""
    not_personalized: tuple[Failure, ...] | None = None
    """the requests that personalization could not fulfil; None before this process tried"""
    deletion: Failure | None = None
    application: Json | Failure | None = None
    """the application of the claim as a Pod, or why it cannot be read; None before this process tried"""
    application_health: Health | None = None
    """what the agent said of the application; None if that is older than the period of health checks"""
    may_launch: bool = True
    """whether the application may be launched, because the Pod of the claim names the claim"""
    deletion_grace_seconds: int | None = None
    """the grace period with which somebody deleted the Pod of the claim"""
    has_agent: bool = False
    """whether an agent in the claim's VM reports the health of its application"""
    ending_seconds: float | None = None
    """seconds since this process asked the agent to stop the application; None before"""
    cluster: ClusterSettings | None = None
    timeline: Timeline = Timeline()

    @property
    def health_period_seconds(self) -> float:
        return health_period_seconds(self.pool)

    @property
    def grace_seconds(self) -> int:
        """The time that the application has for its end."""
        if self.deletion_grace_seconds is not None or self.claim.spec.application is None:
            return self.deletion_grace_seconds or 0
        return self.claim.spec.application.termination_grace_period_seconds

    @property
    def bound_vm(self) -> WarmVM | None:
        """The VM in the claim's status, if it exists."""
        return next((vm for vm in self.vms if vm.uid == self.claim.vm_uid and not vm.deleting), None)

    @property
    def extra_vms(self) -> tuple[WarmVM, ...]:
        """VMs with the claim's UID that are not in the claim's status."""
        return tuple(vm for vm in self.vms if vm.uid != self.claim.vm_uid and not vm.deleting)

    @property
    def on_empty(self) -> str:
        return self.claim.spec.on_empty or (self.pool.spec.claim_policy.on_empty if self.pool else "ColdStart")

    @property
    def bind_deadline(self) -> datetime:
        """The time at which the claim fails if no VM is bound to it."""
        seconds = self.claim.spec.bind_timeout_seconds
        if seconds is None:
            seconds = self.pool.spec.claim_policy.bind_timeout_seconds if self.pool else NO_POOL_SECONDS
        # The second attempt has the full time limit again.
        bound = find_condition(self.claim.status.conditions, "Bound")
        since = (
            bound.last_transition_time if bound is not None and self.claim.status.attempts else self.claim.created_at
        )
        return time_or_min(since) + timedelta(seconds=seconds)


def health_period_seconds(pool: WarmPool | None) -> float:
    return float((pool.spec.health if pool is not None else HealthSpec()).period_seconds)


def time_or_min(text: str | None) -> datetime:
    """Parses a time of the API. Returns the earliest datetime for None."""
    return parse_time(text) if text else datetime.min.replace(tzinfo=UTC)
