"""The capacity of the virtual node: the VMs that Pods have and can get, from the status of warm pools and claims.

The scheduler places a Pod only if a resource of the Node is left for it. Two numbers are exact:

- `poolhouse.dev/warm-vm`: VMs that are ready, and VMs that Pods hold. A Pod that requests one is not placed while no VM
  is ready.
- `pods`: also the VMs that pools would create for waiting claims. A Pod without that request waits in the pool's queue.

A Pod has its VM for itself, so the CPU and the memory of one Pod leave another no less. The Node offers so much of them
for each place that they keep no ordinary Pod away. Whether a Pod fits into a VM depends on the pool that it names.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta

MAX_CREATED = 1000
"""VMs that a pool without `maxTotal` would create. It is far above what one moment needs, and keeps sums readable."""
PLACE = {"cpu": 64, "memory": 256, "ephemeral-storage": 1024}
"""What the Node offers for each place: CPUs, and GiB of memory and of storage."""
FINISHED = ("Released", "Expired", "Failed")


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """The VMs of a warm pool that Pods can get."""

    ready: int = 0
    creatable: int = 0
    """VMs that the pool would create for claims while none is ready"""
    queued: int = 0
    """claims that wait for a VM"""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """The claim of a Pod. A finished one holds nothing."""

    has_vm: bool


def parse_pool(document: Json) -> PoolCapacity | None:
    """None for a pool that gives Pods no VMs. The status is of either backend."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    policy = spec.get("claimPolicy") or {}
    if not policy.get("allowPods") or document["metadata"].get("deletionTimestamp"):
        return None
    existing = ("replicas", "allocating", "claimed", "terminating")
    most = spec.get("maxTotal")
    room = MAX_CREATED if most is None else max(0, most - sum(status.get(each) or 0 for each in existing))
    creates = policy.get("onEmpty") != "Fail" and not spec.get("paused")
    return PoolCapacity(status.get("availableReplicas") or 0, room if creates else 0, status.get("queuedClaims") or 0)


def parse_claim(document: Json) -> PodClaim | None:
    """None for a claim that no Pod owns, and for a finished one."""
    owner, status = controller_of(document), document.get("status") or {}
    if owner is None or owner.get("kind") != "Pod" or status.get("phase") in FINISHED:
        return None
    return PodClaim(bool(status.get("vmRef") or status.get("instanceRef")))


def capacity(pools: Iterable[PoolCapacity | None], claims: Iterable[PodClaim | None]) -> Json:
    """The resources of the Node, as in its status."""
    offers = [each for each in pools if each is not None]
    pods = [each for each in claims if each is not None]
    warm = sum(each.ready for each in offers) + sum(each.has_vm for each in pods)
    places = sum(max(0, each.ready + each.creatable - each.queued) for each in offers) + len(pods)
    return {
        "cpu": str(places * PLACE["cpu"]),
        "memory": f"{places * PLACE['memory']}Gi",
        "ephemeral-storage": f"{places * PLACE['ephemeral-storage']}Gi",
        "pods": str(places),
        meta.WARM_VM: str(warm),
    }
