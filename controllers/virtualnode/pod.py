"""The views of a Pod of the virtual node, of its claim, and of the warm pools that could serve it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Any, Self

from controllers.shared.pod_claims import pod_of
from poolhouse.api.apimachinery.quantity import to_fraction
from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.resource_types import CLAIM_PHASES

TERMINAL = ("Succeeded", "Failed")
"""phases that a Pod never leaves"""
RESOURCES = ("cpu", "memory", "ephemeral-storage", meta.WARM_VM)
"""resources of which the Node has an amount"""
MAX_CREATED = 1000
"""VMs that a pool would create at most. It is far above what one moment needs, and keeps sums readable."""
NOTES = (meta.CLAIM_NAME, meta.VM, meta.WARM_STATE)
"""annotations of a Pod that has a VM: its claim, its VM, and the state of the VM"""


@dataclass(frozen=True)
class Pod:
    """What the controllers need of a Pod. They read the rest once, for its claim."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    pool: str
    """the pool that the Pod names; empty for the default pool of its namespace"""
    containers: Mapping[str, str]
    """images by name, in the order of the spec"""
    init_containers: Mapping[str, str]
    ephemeral_containers: Mapping[str, str]
    readiness_gates: tuple[str, ...]
    restart_policy: str
    active_deadline_seconds: int | None
    deleting: bool
    status: Json
    requests: Mapping[str, int] = field(default_factory=dict)
    """what the scheduler counts for the Pod, in whole CPUs and bytes"""
    notes: Mapping[str, str] = field(default_factory=dict)
    """our annotations"""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "Pending")


def parse_pod(document: Json) -> Pod:
    metadata, spec = document["metadata"], document["spec"]
    annotations = metadata.get("annotations") or {}
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        pool=annotations.get(meta.WARM_POOL, ""),
        containers=_images(spec.get("containers")),
        init_containers=_images(spec.get("initContainers")),
        ephemeral_containers=_images(spec.get("ephemeralContainers")),
        readiness_gates=tuple(each["conditionType"] for each in spec.get("readinessGates") or ()),
        restart_policy=spec.get("restartPolicy") or "Always",
        active_deadline_seconds=spec.get("activeDeadlineSeconds"),
        deleting=bool(metadata.get("deletionTimestamp")),
        status=document.get("status") or {},
        requests=_requests(spec),
        notes={key: annotations[key] for key in NOTES if key in annotations},
    )


def _requests(spec: Json) -> dict[str, int]:
    """The resources of a Pod as the scheduler adds them up (`PodRequests` in Kubernetes' resource helpers).

    The containers run at the same time, and an init container runs alone before them. An init container with
    `restartPolicy: Always` also runs beside all containers that start later."""
    found: dict[str, int] = {}
    for name in RESOURCES:
        beside, alone = Fraction(0), Fraction(0)
        for each in spec.get("initContainers") or ():
            requested = _requested(each, name)
            alone = max(alone, beside + requested)
            beside += requested if each.get("restartPolicy") == "Always" else 0
        together = beside + sum(_requested(each, name) for each in spec.get("containers") or ())
        of_pod = to_fraction(at(spec, "resources", "requests", name))
        overhead = to_fraction(at(spec, "overhead", name)) or 0
        found[name] = ceil((max(together, alone) if of_pod is None else of_pod) + overhead)
    return {name: number for name, number in found.items() if number}


def _requested(container: Json, name: str) -> Fraction:
    return to_fraction(at(container, "resources", "requests", name)) or Fraction(0)


def _images(containers: Any) -> dict[str, str]:
    return {each["name"]: each.get("image") or "" for each in containers or ()}


@dataclass(frozen=True)
class PodClaim:
    """What the controllers need of the claim of a Pod."""

    namespace: str
    name: str
    uid: str
    pod: str
    pod_uid: str
    phase: str
    released: bool
    """whether the release is requested, or the claim has lost its Pod"""
    dropped: bool
    """whether the claim is deleted once it has ended and its VM is gone"""
    vm: str
    """the name of the VM, or the ID of the EC2 instance"""
    vm_uid: str
    on_ec2: bool
    handed_over: bool
    bound_at: str
    finished_at: str
    addresses: tuple[str, ...] | None
    """Confirmed addresses; None if nothing is known of them. A claim has the unconfirmed ones of its VM."""
    application: Json
    reason: str
    message: str
    """why the claim is not ready, or why it has ended"""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def finished(self) -> bool:
        return self.phase in CLAIM_PHASES.terminal

    @property
    def obstacle(self) -> tuple[str, str]:
        """Reason and message for a Pod whose claim gives it no VM, or no VM any more."""
        return self.reason or self.phase, self.message or f"claim {self.name} is {self.phase}"

    @property
    def not_ready(self) -> tuple[str, str, str, str] | None:
        """The condition Ready of the Pod if its VM was ready and is not now."""
        if not self.handed_over or not self.reason:
            return None
        return "Ready", "False", self.reason, self.message


def parse_claim(document: Json) -> PodClaim | None:
    """None for a claim that belongs to no Pod."""
    pod, metadata, status = pod_of(document), document["metadata"], document.get("status") or {}
    if pod is None:
        return None
    text = partial(typed, str, status)
    phase = text("phase") or "Pending"
    on_ec2 = bool(text("instanceRef", "id"))
    reason, message = _obstacle(phase, status)
    return PodClaim(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        pod=pod.name,
        pod_uid=pod.uid,
        phase=phase,
        released=bool(at(document, "spec", "release")) or bool(metadata.get("deletionTimestamp")) or pod.lost,
        dropped=at(document, "spec", "ttlSecondsAfterFinished") == 0,
        vm=text("vmRef", "name") or text("instanceRef", "id") or "",
        vm_uid=text("vmRef", "uid") or "",
        on_ec2=on_ec2,
        handed_over=bool(text("readyAt")),
        bound_at=text("boundAt") or "",
        finished_at=text("finishedAt") or "",
        addresses=tuple(status.get("addresses", ())) if on_ec2 else None,
        application=status.get("application", {}),
        reason=reason,
        message=message,
    )


def _obstacle(phase: str, status: Json) -> tuple[str, str]:
    """Reason and message of the condition that says why the claim is not ready, or why it has ended. Empty if it is."""
    conditions = {each.get("type"): each for _, each in entries(status, "conditions")}
    bound = conditions.get("Bound", {})
    found = bound if phase in ("Pending", "Queued", "Allocating") else conditions.get("Ready", bound)
    if phase == "Ready" and found.get("reason") == conditions.get("ApplicationHealthy", {}).get("reason"):
        return "", ""  # the Pod has the state of its application from the agent's report
    return (found.get("reason", ""), found.get("message", "")) if found.get("status") == "False" else ("", "")


@dataclass(frozen=True)
class Offer:
    """The VMs of a warm pool that Pods can get."""

    ready: int = 0
    creatable: int = 0
    """VMs that the pool would create for claims while none is ready"""
    queued: int = 0
    """claims that wait for a VM"""


@dataclass(frozen=True)
class PodPool:
    """What the controllers need of a warm pool: whether Pods may use it, and how many VMs it has for them."""

    namespace: str
    name: str
    default: bool
    created_at: str
    uid: str
    allows_pods: bool
    deleting: bool
    offer: Offer = Offer()

    @property
    def without_offer(self) -> Self:
        """What decides which Pods may use the pool, without the VMs that it has for them."""
        return replace(self, offer=Offer())


def parse_pool(document: Json) -> PodPool:
    metadata, spec = document["metadata"], document.get("spec") or {}
    return PodPool(
        namespace=metadata["namespace"],
        name=metadata["name"],
        default=bool(spec.get("default")),
        created_at=metadata.get("creationTimestamp") or "",
        uid=metadata["uid"],
        allows_pods=bool(at(spec, "claimPolicy", "allowPods")),
        deleting=bool(metadata.get("deletionTimestamp")),
        offer=_offer(spec, document.get("status") or {}),
    )


def _offer(spec: Json, status: Json) -> Offer:
    """From the status of a pool of either backend."""
    most, existing = spec.get("maxTotal"), ("replicas", "allocating", "claimed", "terminating")
    room = MAX_CREATED if most is None else min(MAX_CREATED, most - sum(status.get(each) or 0 for each in existing))
    creates = at(spec, "claimPolicy", "onEmpty") != "Fail" and not spec.get("paused")
    return Offer(status.get("availableReplicas") or 0, max(0, room) if creates else 0, status.get("queuedClaims") or 0)
