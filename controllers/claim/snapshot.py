"""The data about a claim at one moment: views, snapshot and record."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from controllers.shared.invalid_spec import describe, parse_status
from controllers.shared.pod_claims import pod_of
from controllers.shared.sources import Source
from controllers.warmpool.agent import ApplicationHealth
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_pool import WarmPool, named_by
from controllers.warmpool.warm_vm import CLAIM_KIND, Owner, WarmVM
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.checks.claim import with_annotation_overrides
from poolhouse.api.kinds.claim import CLAIM, NO_POOL_SECONDS, ClaimSpec, ClaimStatus, Overrides
from poolhouse.api.kinds.resource_types import CLAIM_PHASES
from poolhouse.api.kinds.warm_readiness import Health as HealthSpec
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.reflector import is_older
from poolhouse.runtime.resource import Key, Resource
from poolhouse.runtime.store import Store

Json = dict[str, Any]

CLAIMS = Resource.of(CLAIM)

NO_OVERRIDES = Overrides()
BIND_SECONDS = 300.0
"""default time limit for a claim to be bound"""


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
        own = self.claim.spec.bind_timeout_seconds
        seconds = float(own) if own is not None else BIND_SECONDS
        if own is None:
            seconds = float(self.pool.spec.claim_policy.bind_timeout_seconds) if self.pool else float(NO_POOL_SECONDS)
        # The second attempt has the full time limit again.
        bound = next((c for c in self.claim.status.conditions if c.type == "Bound"), None)
        since = (
            bound.last_transition_time if bound is not None and self.claim.status.attempts else self.claim.created_at
        )
        return time_or_min(since) + timedelta(seconds=seconds)


def health_period_seconds(pool: WarmPool | None) -> float:
    return float((pool.spec.health if pool is not None else HealthSpec()).period_seconds)


def time_or_min(text: str | None) -> datetime:
    """Parses a time of the API. Returns the earliest datetime for None."""
    return parse_time(text) if text else datetime.min.replace(tzinfo=UTC)


MAX_CACHE_LAG_SECONDS = 15.0
"""Maximum age of a write that the store may not show yet. Later, the controller lists the VMs from the API."""


RETRY_APPLICATION_SECONDS = 5.0
"""Pause between two attempts to read the ConfigMaps and Secrets of an application."""
ENDING_CHECK_SECONDS = 0.5
"""Period of the checks of an application that the agent stops."""
RESUME_SECONDS = 10.0
"""The time in which KubeVirt certainly shows in a VMI that its guest runs again. It usually takes about a second."""


@dataclass
class ClaimRecord:
    """The data of this process about one claim, in addition to the stores. A new leader does not need the record. It
    protects from decisions on stale data, and marks objects that must be read from the API. `Allocator.forget` drops
    the record of a deleted or finished claim."""

    vms_known: bool = False
    """whether all VMs with the claim's UID are in the stores or in this record"""
    stale: bool = False
    """whether the claim must be read from the API"""
    claim: Claim | None = None
    """the claim after the last write of this process"""
    vms: dict[str, tuple[WarmVM, float]] = field(default_factory=dict)
    """VMs after the last write or read of this process, with its time, by UID"""
    gone: set[str] = field(default_factory=set)
    """UIDs of VMs whose deletion the store has shown. The answer to an earlier write may come later."""
    own: set[str] = field(default_factory=set)
    """UIDs of the VMs that this process has reserved or created for the claim"""
    reserved: dict[str, Key] = field(default_factory=dict)
    """VMs that are reserved until the store shows the reservation, by UID"""
    rejected: dict[str, Key] = field(default_factory=dict)
    """VMs whose reservation was refused, by UID; the claim tries other VMs first"""
    creating: set[tuple[str, str]] = field(default_factory=set)
    """(pool UID, name) of VMs that this process requested"""
    placement_draws: int = 0
    """the number of refused creations; each creation draws another placement"""
    unconfirmed: str = ""
    """the name of a VM whose creation got no response"""
    health: Health | None = None
    """the result of the last step, dropped after the next step"""
    failure: Failure | None = None
    retry_at: float = 0.0
    """time of the next attempt after a failure"""
    failures: int = 0
    """consecutive failures"""
    resumed: tuple[str, float] | None = None
    """the UID of the VM that this process has unpaused, and the time"""
    personalization: tuple[str, tuple[Failure, ...]] | None = None
    """the UID of the personalized VM, and the requests that failed"""
    deletion: Failure | None = None
    """why this process deleted the claim's VM"""
    application: tuple[Json | Failure, float] | None = None
    """the claim's application, and the time at which it was read"""
    application_health: tuple[Health, float] | None = None
    """the health of the claim's application, and the time of the check"""
    terminated_at: float | None = None
    """the time at which this process asked the agent to stop the claim's application"""
    timeline: Timeline = field(default_factory=Timeline)
    counted: bool = False
    """whether the history of the pool's demand includes the claim"""

    def read_application(self, now: float) -> Json | Failure | None:
        """The application. An attempt that failed is repeated after some seconds."""
        if self.application is None:
            return None
        found, at = self.application
        return None if isinstance(found, Failure) and now - at >= RETRY_APPLICATION_SECONDS else found

    def recent_application_health(self, now: float, period_seconds: float) -> Health | None:
        """The agent's last answer, if it is not older than a period. The end of a stopped
        application is returned after this period too, so that the status shows it when the VM is gone."""
        if self.application_health is None:
            return None
        found, at = self.application_health
        if self.terminated_at is None:
            return found if now - at < period_seconds else None
        stopped = isinstance(found, ApplicationHealth) and found.status.get("phase") in ("Succeeded", "Failed")
        return found if stopped or now - at < ENDING_CHECK_SECONDS else None

    def has_resumed(self, vm: WarmVM, now: float) -> bool:
        """Whether this process has unpaused the VM, and KubeVirt may not show it yet."""
        return self.resumed is not None and self.resumed[0] == vm.uid and now - self.resumed[1] < RESUME_SECONDS

    def latest(self, cached: Claim) -> Claim:
        """The claim after the last write of this process, until the store shows that version or a newer version."""
        same = self.claim is not None and self.claim.uid == cached.uid
        if self.claim is not None and same and is_older(cached.resource_version, self.claim.resource_version):
            return self.claim
        self.claim = None
        return cached

    def remember(self, vm: WarmVM, now: float) -> None:
        if vm.uid not in self.gone:
            self.vms[vm.uid] = (vm, now)

    def listed(self, vms: Iterable[WarmVM], now: float) -> None:
        """Replaces the VMs by a complete list of VMs with the claim's UID."""
        self.vms = {vm.uid: (vm, now) for vm in vms if vm.uid not in self.gone}
        self.vms_known = True

    def seconds_until_shown(self, cached: Iterable[WarmVM], now: float) -> float | None:
        """Seconds until this record forgets a VM that the store does not show. None if the store shows all."""
        hidden = self.vms.keys() - {vm.uid for vm in cached}
        ends = [at + MAX_CACHE_LAG_SECONDS - now for uid, (_, at) in self.vms.items() if uid in hidden]
        return max(0.1, min(ends)) if ends else None

    def merged(self, cached: Iterable[WarmVM], now: float) -> tuple[WarmVM, ...]:
        """The claim's VMs from the store, or from this record if its version is newer."""
        merged = {vm.uid: vm for vm in cached}
        for uid, (vm, at) in list(self.vms.items()):
            shown = merged.get(uid)
            if shown is not None and not is_older(shown.resource_version, vm.resource_version):
                # A VM that this process deleted stays deleted while the store shows its last version.
                if not vm.deleting or shown.deleting or shown.resource_version != vm.resource_version:
                    del self.vms[uid]
                    continue
            elif shown is None and now - at > MAX_CACHE_LAG_SECONDS:
                del self.vms[uid]
                self.vms_known = False
                continue
            merged[uid] = vm if vm.vmi is None and vm.node is None else replace(vm, vmi=None, node=None)
        return tuple(merged.values())

    def vm_deleted(self, uid: str) -> None:
        """Removes a VM whose deletion the store has shown."""
        self.vms.pop(uid, None)
        self.reserved.pop(uid, None)
        self.gone.add(uid)
        self.vms_known = False
