"""The capacity of the virtual node: the VMs that Pods have and can get, from warm pools, claims and bound Pods.

The scheduler places a Pod only if a resource of the Node is left for it. Two numbers say how many are left:

- `poolhouse.dev/warm-vm`: VMs that are ready, and VMs that Pods hold. A Pod that requests one is not placed while no VM
  is ready.
- `pods`: also the VMs that pools would create for waiting claims. A Pod without that request waits in the pool's queue.

A bound Pod takes nothing away from others, whatever it requests, also one that no VM can run or that no pool takes: the
Node has what its Pods request, and so much CPU and memory for each further place that they keep no ordinary Pod away.
Whether a Pod fits into a VM depends on the pool that it names. A Pod beyond the limits ends, and adds nothing.
"""

from collections.abc import Iterable
from math import ceil

from controllers.virtualnode.limits import excess
from controllers.virtualnode.pod import TERMINAL, Pod, PodClaim, PodPool
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta

MI, GI = 1 << 20, 1 << 30
PLACE = {"cpu": 64, "memory": 256 * GI, "ephemeral-storage": 1024 * GI}
"""What the Node offers for each place that is left: CPUs, and bytes of memory and of storage."""
MAX_FREE = 1 << 16
"""places that are left at most. Kubernetes counts what the Node offers for them in 64 bits."""


def capacity(pools: Iterable[PodPool], claims: Iterable[PodClaim | None], pods: Iterable[Pod]) -> Json:
    """The resources of the Node, as in its status."""
    offers = [each.offer for each in pools if each.allows_pods and not each.deleting]
    held = {each.pod_uid: bool(each.vm) for each in claims if each is not None and not each.finished}
    bound = [each for each in pods if each.phase not in TERMINAL and excess(each) is None]
    free = min(MAX_FREE, sum(max(0, each.ready + each.creatable - each.queued) for each in offers))
    # A Pod that waits for a VM takes a ready VM if it has a claim. A Pod without a claim takes none.
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
