"""Gives the Pods of the virtual node VMs of warm pools, and writes their status."""

from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf

from controllers.shared.pod_claims import claim_name, pod_of
from controllers.shared.vmi import VMI
from controllers.virtualnode.addresses import AddressReader
from controllers.virtualnode.pod import TERMINAL, Pod, PodClaim, PodPool
from controllers.virtualnode.pod_plan import (
    RETRY_SECONDS,
    CreateClaim,
    DropClaim,
    ReleaseClaim,
    RemovePod,
    Step,
    Wait,
    WriteStatus,
    names_claim,
    plan,
)
from controllers.virtualnode.pod_status import Waiting
from controllers.virtualnode.reasons import PodReason
from controllers.virtualnode.sources import Sources
from controllers.virtualnode.translate import Refused, TooLarge, claim_of
from controllers.warmpool.vm_agent import VMAgents
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound
from poolhouse.runtime.events import EventRecorder, view_reference
from poolhouse.runtime.resource import PODS, Key, Resource
from poolhouse.runtime.store import Store

CLAIMS = Resource.of(CLAIM)
WORKERS = 16
"""Pods of one namespace that are served at once"""
TRIES = 4
"""failed requests for a claim until the Pod says why; a refusal by its contents is told at once"""
ADDRESS_PAUSES = Backoff(base_seconds=1, cap_seconds=60)
CLAIM_LAG_SECONDS = 1.0
"""pause until the store surely shows a claim that exists"""
LOST_CLAIM_PAUSES = Backoff(base_seconds=CLAIM_LAG_SECONDS, cap_seconds=15)
"""Pauses of a Pod without a claim whose VM may still run. The author of a Pod may name any VM in its annotation, which
then runs as long as the author wants."""


@dataclass(frozen=True)
class Refusal:
    """Why the claim of a Pod could not be created, and for how long that holds."""

    uid: str
    why: Waiting
    until: float


@dataclass
class PodController:
    api: Api
    events: EventRecorder
    pods: Store[Pod]
    claims: Store[PodClaim | None]
    pools: Store[PodPool]
    addresses: AddressReader
    _refusals: dict[Key, Refusal] = field(default_factory=dict)
    _failures: Counter[Key] = field(default_factory=Counter)
    """how often the claim of a Pod could not be created"""
    _unconfirmed: Counter[Key] = field(default_factory=Counter)
    """how often a launcher Pod of the VM had no address yet"""
    _without_claim: Counter[Key] = field(default_factory=Counter)
    """how often a Pod that names its claim had none, although its VM may still run"""

    async def reconcile(self, key: Key) -> float | None:
        pod = self.pods.get(key)
        if pod is None:
            self._refusals.pop(key, None)
            self._failures.pop(key, None)
            self._unconfirmed.pop(key, None)
            self._without_claim.pop(key, None)
            return None
        claim, refusal = self._claim_of(pod), self._refusal(pod)
        if claim is None and (await self._has_unseen_claim(pod) or self._may_still_run(pod)):
            self._without_claim[key] += 1
            return LOST_CLAIM_PAUSES.delay(self._without_claim[key], "/".join(key))
        self._without_claim.pop(key, None)
        look_again = None
        if claim is not None:
            found = await self.addresses.read(claim)
            claim = replace(claim, addresses=found.addresses if found is not None else None)
            look_again = self._pause(key, unconfirmed=found is not None and not found.complete)
        step = plan(pod, claim, self._pools_of(pod), refusal.why if refusal else None, self.api.now())
        if isinstance(step, CreateClaim):
            return await self._create_claim(pod)
        try:
            after = await self._take(pod, step)
        except NotFound:  # its deletion is an event
            return None
        if after is None and refusal is not None and refusal.until < inf:
            return max(0.0, refusal.until - self.api.monotonic())
        return min((each for each in (after, look_again) if each is not None), default=None)

    def _pause(self, key: Key, *, unconfirmed: bool) -> float | None:
        """The pause until the addresses of a VM are read again. No event says that a launcher Pod has its address."""
        if not unconfirmed:
            self._unconfirmed.pop(key, None)
            return None
        self._unconfirmed[key] += 1
        return ADDRESS_PAUSES.delay(self._unconfirmed[key], "/".join(key))

    async def _take(self, pod: Pod, step: Step) -> float | None:
        match step:
            case WriteStatus(patch, events):
                await self.api.patch(PODS, pod.namespace, pod.name, patch, subresource="status")
                for kind, reason, message in events:
                    self.events.emit(
                        view_reference(PODS, pod),
                        "Warning" if kind == "Warning" else "Normal",
                        reason,
                        message,
                        action="RunPod",
                    )
            case ReleaseClaim(claim):
                # A claim of this name may have another owner by now.
                patch = {"metadata": {"uid": claim.uid}, "spec": {"release": True}}
                await self.api.patch(CLAIMS, claim.namespace, claim.name, patch)
            case DropClaim(claim):
                patch = {"metadata": {"uid": claim.uid}, "spec": {"ttlSecondsAfterFinished": 0}}
                await self.api.patch(CLAIMS, claim.namespace, claim.name, patch)
            case RemovePod():
                await self.api.delete(PODS, pod.namespace, pod.name, uid=pod.uid, grace_seconds=0)
            case Wait(seconds):
                return seconds
        return None

    async def _create_claim(self, pod: Pod) -> float | None:
        """Reads the whole Pod, which may be gone, and creates its claim."""
        document = await find(self.api, PODS, pod.namespace, pod.name)
        if document is None or document["metadata"]["uid"] != pod.uid or document["metadata"].get("deletionTimestamp"):
            return None
        claim = claim_of(document)
        if isinstance(claim, Refused):
            return self._refuse(pod, Waiting(PodReason.FIELDS_NOT_SUPPORTED, claim.message), inf)
        if isinstance(claim, TooLarge):
            return self._refuse(pod, Waiting(PodReason.FAILED_CLAIM, claim.message), RETRY_SECONDS)
        try:
            await self.api.create(CLAIMS, claim)
        except AlreadyExists:
            return await self._existing(pod)
        except ApiError as error:
            self._failures[pod.key] += 1
            if not isinstance(error, Invalid | Forbidden) and self._failures[pod.key] < TRIES:
                raise
            return self._refuse(pod, Waiting(PodReason.FAILED_CLAIM, error.message), RETRY_SECONDS)
        self._failures.pop(pod.key, None)
        return None

    async def _existing(self, pod: Pod) -> float | None:
        """The claim was created before and the store does not show it yet, or it has another owner."""
        found = await find(self.api, CLAIMS, pod.namespace, claim_name(pod.name, pod.uid))
        if found is None:
            return 0.0
        if _belongs_to(found, pod):
            return CLAIM_LAG_SECONDS
        message = f"the claim {found['metadata']['name']} exists and belongs to another object"
        return self._refuse(pod, Waiting(PodReason.FAILED_CLAIM, message), RETRY_SECONDS)

    async def _has_unseen_claim(self, pod: Pod) -> bool:
        """Whether the claim that a Pod names exists, and the store does not show it yet. Without it, the Pod would fail
        or be removed while it runs. After a change of leader, the store of claims may be behind that of Pods."""
        if not names_claim(pod) or (pod.phase in TERMINAL and not pod.deleting):
            return False
        found = await find(self.api, CLAIMS, pod.namespace, claim_name(pod.name, pod.uid))
        return found is not None and _belongs_to(found, pod)

    def _may_still_run(self, pod: Pod) -> bool:
        """Whether the VM of a Pod that has lost its claim is still going. Another Pod would take the Pod's place."""
        of = pod.notes.get(meta.VM, "")
        return names_claim(pod) and pod.phase not in TERMINAL and self.addresses.vmi_of((pod.namespace, of)) is not None

    def _refuse(self, pod: Pod, why: Waiting, seconds: float) -> float:
        """Remembers why, so that the next reconcile writes it."""
        self._refusals[pod.key] = Refusal(pod.uid, why, self.api.monotonic() + seconds)
        return 0.0

    def _refusal(self, pod: Pod) -> Refusal | None:
        found = self._refusals.get(pod.key)
        if found is not None and (found.uid != pod.uid or self.api.monotonic() >= found.until):
            del self._refusals[pod.key]
            return None
        return found

    def _claim_of(self, pod: Pod) -> PodClaim | None:
        """The claim that the controllers have created. Others that name the Pod as their owner are not the Pod's."""
        claim = self.claims.get((pod.namespace, claim_name(pod.name, pod.uid)))
        return claim if claim is not None and claim.pod_uid == pod.uid else None

    def _pools_of(self, pod: Pod) -> list[PodPool]:
        return self.pools.by("namespace", pod.namespace)


def _belongs_to(claim: Json, pod: Pod) -> bool:
    of = pod_of(claim)
    return of is not None and of.uid == pod.uid


def _addresses_of(vmi: VMI) -> tuple[tuple[str, ...], ...]:
    return vmi.addresses, vmi.active_pods


def build(api: Api, events: EventRecorder, sources: Sources, vm_agents: VMAgents) -> Controller[Key]:
    """`vm_agents` knows which of the addresses that a guest reports are its own."""
    pods, claims, pools = sources.of_capacity
    addresses = AddressReader(sources.vmis.store.get, vm_agents.addresses)
    pod_controller = PodController(api, events, pods.store, claims.store, pools.store, addresses)
    controller: Controller[Key] = Controller("pod", pod_controller.reconcile, workers=WORKERS, metrics=api.metrics)

    def pod_changed(old: Pod | None, new: Pod | None) -> None:
        if (pod := new or old) is not None:
            controller.enqueue(pod.key)

    def claim_changed(old: PodClaim | None, new: PodClaim | None) -> None:
        if (claim := new or old) is not None:
            controller.enqueue((claim.namespace, claim.pod))

    def pool_changed(old: PodPool | None, new: PodPool | None) -> None:
        """Another pool may be the default pool now, so all Pods of the namespace are reconciled. A change of the
        number of VMs in a pool reconciles none of them."""
        if old is not None and new is not None and old.without_offer == new.without_offer:
            return
        if (pool := new or old) is not None:
            for pod in pods.store.by("namespace", pool.namespace):
                controller.enqueue(pod.key)

    def vmi_changed(old: VMI | None, new: VMI | None) -> None:
        """The addresses of a Pod follow those of its VM and of the launcher Pods."""
        if new is None or (old is not None and _addresses_of(old) == _addresses_of(new)):
            return
        for claim in claims.store.by("vm", new.key):
            claim_changed(None, claim)

    pods.subscribe(pod_changed)
    claims.subscribe(claim_changed)
    pools.subscribe(pool_changed)
    sources.vmis.subscribe(vmi_changed)
    return controller
