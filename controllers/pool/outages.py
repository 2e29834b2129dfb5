"""Names the nodes whose outage keeps VMs of a pool from being available.

The condition Ready of the node decides. Kubernetes sets it within a minute of an outage, and the VMs of the node become
unavailable a moment later. KubeVirt starts such a VM on another node only when it is certain that the VM has ended.

The log of decisions has the outage and the end of it. It also remembers the outages that have not ended.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.shared.decisions import decision
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.decisions import MAX_VMS, Decision, vm_reference

LOGGED = (PoolReason.NODE_NOT_READY, PoolReason.NODE_READY)


@once
def vms_of_lost_nodes(snapshot: PoolSnapshot) -> Mapping[str, Sequence[VM]]:
    """The unavailable VMs on nodes that are not ready, by node."""
    if all(snapshot.nodes.values()):
        return {}
    found: dict[str, list[VM]] = {}
    for vm in sorted(snapshot.active, key=lambda vm: (vm.ordinal or 0, vm.name)):
        if node := lost_node(snapshot, vm):
            found.setdefault(node, []).append(vm)
    return dict(sorted(found.items()))


def lost_vms(snapshot: PoolSnapshot) -> frozenset[str]:
    """The UIDs of the unavailable VMs on nodes that are not ready."""
    return frozenset(vm.uid for vms in vms_of_lost_nodes(snapshot).values() for vm in vms)


def lost_node(snapshot: PoolSnapshot, vm: VM) -> str:
    """The node of an unavailable VM, if it is not ready; else an empty string."""
    if not vm.should_run or vm.available or vm.vmi is None or snapshot.nodes.get(vm.vmi.node, True):
        return ""
    return vm.vmi.node


def describe_lost_nodes(snapshot: PoolSnapshot) -> str:
    """`node a is not ready (2 VMs)`, for each node; empty without an outage."""
    found = vms_of_lost_nodes(snapshot).items()
    return ", ".join(f"{not_ready(node)} ({count_noun(len(vms), 'VM')})" for node, vms in found)


def not_ready(node: str) -> str:
    return f"node {node} is not ready"


def open_outages(known: Iterable[Decision]) -> dict[str, Decision]:
    """The outages that have begun and have not ended according to these decisions, by node."""
    found: dict[str, Decision] = {}
    # Each reconcile asks, and most decisions are about other things.
    about_nodes = (each for each in known if each.reason in LOGGED)
    for each in sorted(about_nodes, key=lambda each: each.time):
        if each.node:
            found.pop(each.node, None)
            if each.reason == PoolReason.NODE_NOT_READY:
                found[each.node] = each
    return found


def outage_decisions(snapshot: PoolSnapshot, known: Iterable[Decision], now: datetime) -> Iterator[Decision]:
    """What the log must say about nodes and does not have yet. `known` are the decisions that it has."""
    lost, logged, time = vms_of_lost_nodes(snapshot), open_outages(known), format_time(now)
    for node in sorted(lost.keys() - logged.keys()):
        # Some of the VMs may become unavailable a moment later.
        vms = [vm for vm in snapshot.active if vm.vmi is not None and vm.vmi.node == node]
        message = f"{not_ready(node)}: {count_noun(len(vms), 'VM', 'is', 'are')} on it"
        shown = (vm_reference(vm.name, vm.uid) for vm in vms[:MAX_VMS])
        yield decision(time, PoolReason.NODE_NOT_READY, message, *shown, node=node)
    for node, outage in logged.items():
        if snapshot.nodes.get(node):
            message = f"node {node} is ready again, after an outage since {outage.time}"
            yield decision(time, PoolReason.NODE_READY, message, *outage.vms, node=node)
