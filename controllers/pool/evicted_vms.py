"""Finds the VMs that a drain has stopped, for the log of decisions and for events.

A drain stops the VMs that KubeVirt does not move. The pool sees that such a VMI ends on a node that is
cordoned or drained, and that no client has deleted it. A guest that ends by itself on this node looks the same.
"""

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.decisions import decision
from controllers.shared.evictions import treatment_of
from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.decisions import Decision, vm_reference


def evictions(snapshot: PoolSnapshot, now: datetime) -> Iterator[Decision]:
    """One decision for each VM. It has the time at which the VMI ended, so that another leader does not repeat it."""
    strategies = {vm.uid: vm.run_strategy for vm in snapshot.active}
    for vmi in snapshot.ended_vmis:
        if vmi.owner_uid in strategies and not vmi.deleting and may_be_evicted(snapshot, vmi):
            message = f"stopped while its node {vmi.node} was drained; {_what_follows(strategies[vmi.owner_uid], vmi)}"
            vm = vm_reference(vmi.name, vmi.owner_uid)
            yield decision(vmi.ended_at or format_time(now), PoolReason.EVICTED, message, vm, node=vmi.node)


def may_be_evicted(snapshot: PoolSnapshot, vmi: VMI) -> bool:
    """Whether a drain may have stopped the VMI, which has ended. An eviction stops no VM that KubeVirt moves."""
    return vmi.node in snapshot.leaving and treatment_of(vmi, snapshot.cluster) != "Move"


def _what_follows(run_strategy: str, vmi: VMI) -> str:
    if run_strategy == "Always" or (run_strategy == "RerunOnFailure" and not vmi.succeeded):
        return "KubeVirt starts it on another node"
    return f"its run strategy is {run_strategy}, so that KubeVirt does not start it again"
