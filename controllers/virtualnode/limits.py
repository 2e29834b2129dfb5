"""The most that one Pod may request of the virtual node.

The Node has what its Pods request, and the scheduler adds their requests up in 64 bits. One absurd request could fill
that number, and then no other Pod would be placed. The controllers end such a Pod, as a kubelet ends Pods that its node
has no room for, because the scheduler counts every Pod that has not ended, also one that waits or that is deleted and
has a finalizer. A ReplicaSet replaces a Pod that has failed at once, so the limits are far above what any machine has:
the Pods of nobody who means what they request come into that loop.
"""

from collections.abc import Mapping

from controllers.virtualnode.pod import Pod
from controllers.virtualnode.reasons import PodReason
from poolhouse.api.kinds import meta

TI = 1 << 40
LIMITS: Mapping[str, tuple[PodReason, int, str]] = {
    "cpu": (PodReason.OUT_OF_CPU, 16384, "16384"),
    "memory": (PodReason.OUT_OF_MEMORY, 32 * TI, "32Ti"),
    "ephemeral-storage": (PodReason.OUT_OF_STORAGE, 32 * TI, "32Ti"),
    meta.WARM_VM: (PodReason.OUT_OF_WARM_VM, 1024, "1024"),
}
"""Reason, limit, and how the limit reads. 200,000 Pods with the most stay within 63 bits; Kubernetes supports fewer."""


def excess(pod: Pod) -> tuple[PodReason, str] | None:
    """Reason and message if the Pod requests more than any VM has; None for another Pod."""
    for name, (reason, most, text) in LIMITS.items():
        if (requested := pod.requests.get(name, 0)) > most:
            return reason, f"no VM has as much {name}: the Pod requests {requested}, and the node takes at most {text}"
    return None
