"""The capacity of the virtual node: the VMs that Pods have and can get, from warm pools, claims and bound Pods.

The scheduler places a Pod only if a resource of the Node is left for it. Two numbers say how many are left:

- `poolhouse.dev/warm-vm`: VMs that are ready, and VMs that Pods hold. A Pod that requests one is not placed while no VM
  is ready.
- `pods`: also the VMs that pools would create for waiting claims. A Pod without that request waits in the pool's queue.

A bound Pod takes nothing away from others, whatever it requests, also one that no VM can run or that no pool takes: the
Node has what its Pods request, and so much CPU and memory for each further place that they keep no ordinary Pod away.
Whether a Pod fits into a VM depends on the pool that it names.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from controllers.virtualnode.pod import FINISHED, TERMINAL, Pod
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta

MAX_CREATED = 1000
"""VMs that a pool without `maxTotal` would create. It is far above what one moment needs, and keeps sums readable."""
MI, GI = 1 << 20, 1 << 30
PLACE = {"cpu": 64, "memory": 256 * GI, "ephemeral-storage": 1024 * GI}
"""What the Node offers for each place that is left: CPUs, and bytes of memory and of storage."""


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

    uid: str
    pod_uid: str
    has_vm: bool
    vm: str = ""
    """the name of the VM; empty for an EC2 instance"""


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
    vm, instance = status.get("vmRef") or {}, status.get("instanceRef")
    return PodClaim(document["metadata"]["uid"], owner["uid"], bool(vm or instance), vm.get("name") or "")


def capacity(pools: Iterable[PoolCapacity | None], claims: Iterable[PodClaim | None], pods: Iterable[Pod]) -> Json:
    """The resources of the Node, as in its status."""
    offers = [each for each in pools if each is not None]
    held = {each.pod_uid: each.has_vm for each in claims if each is not None}
    bound = [each for each in pods if each.phase not in TERMINAL]
    free = sum(max(0, each.ready + each.creatable - each.queued) for each in offers)
    # A Pod that waits for a VM with its claim takes one that is ready. One without a claim takes none.
    idle = sum(each.requests.get(meta.WARM_VM, 0) for each in bound if each.uid not in held)
    warm = sum(each.ready for each in offers) + sum(held.values()) + idle

    def sized(name: str) -> int:
        return free * PLACE[name] + sum(each.requests.get(name, 0) for each in bound)

    return {
        "cpu": str(sized("cpu")),
        "memory": f"{ceil(sized('memory') / MI)}Mi",
        "ephemeral-storage": f"{ceil(sized('ephemeral-storage') / MI)}Mi",
        "pods": str(free + len(bound)),
        meta.WARM_VM: str(warm),
    }
