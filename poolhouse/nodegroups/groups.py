"""Which pools are node groups, and which change of a pool a request of the autoscaler means. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from controllers.pool.pools import Pool, format_removals
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.node_groups import Limits

Code = Literal["INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"]
PROVIDER = "kubevirt://"
"""begins the providerID of a node, which ends with the name of its VM"""


class Refused(Exception):
    """A request that the autoscaler must not repeat as it is."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True)
class NodeGroup:
    """A pool that the autoscaler scales, and its VMs. The pool's name identifies the group."""

    pool: Pool
    limits: Limits
    vms: tuple[VM, ...] = ()

    @property
    def size(self) -> int:
        return self.pool.spec.replicas

    @property
    def removed(self) -> tuple[VM, ...]:
        """VMs that a request has named already, and that still exist."""
        return PoolSnapshot(self.pool, self.vms).removed

    @property
    def counted(self) -> tuple[VM, ...]:
        return PoolSnapshot(self.pool, self.vms).counted


@dataclass(frozen=True)
class Groups:
    """All node groups of a namespace at one time."""

    by_name: Mapping[str, NodeGroup] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why pools that have the annotations are no node groups, by name."""

    def of_vm(self, name: str) -> NodeGroup | None:
        return next((each for each in self.by_name.values() if any(vm.name == name for vm in each.vms)), None)


@dataclass(frozen=True)
class Change:
    """What a request writes into a pool."""

    replicas: int
    removals: Mapping[str, str] | None = None
    """the VMs that the pool must delete, with their UIDs; None leaves the annotation"""

    def patch(self, resource_version: str) -> Json:
        metadata: Json = {"resourceVersion": resource_version}
        if self.removals is not None:
            metadata["annotations"] = {meta.REMOVE_VMS: format_removals(self.removals)}
        return {"metadata": metadata, "spec": {"replicas": self.replicas}}


def vm_name(provider_id: str, node: str) -> str:
    """The VM of a node, or "". A node has no providerID for a moment after it has joined its cluster. Its name does not
    count if it has the providerID of another provider."""
    return provider_id.removeprefix(PROVIDER) if provider_id.startswith(PROVIDER) else "" if provider_id else node


def obstacle(pool: Pool, scaled_by: Mapping[str, str]) -> str:
    """Why the autoscaler must leave a pool alone now, or "". `scaled_by` has the HorizontalPodAutoscalers by pool."""
    if pool.deleting:
        return "the pool is being deleted"
    if pool.spec.paused:
        return "the pool is paused"
    if pool.name in scaled_by:
        return f"HorizontalPodAutoscaler {scaled_by[pool.name]} also sets its replicas"
    return ""


def increase(group: NodeGroup, delta: int) -> Change:
    if delta <= 0:
        raise Refused("INVALID_ARGUMENT", f"the size can only be increased by 1 or more, not by {delta}")
    if group.size + delta > group.limits.max_size:
        wanted = count_noun(group.size + delta, "node")
        raise Refused("FAILED_PRECONDITION", f"{wanted} would be more than the maximum of {group.limits.max_size}")
    return Change(group.size + delta)


def decrease(group: NodeGroup, delta: int) -> Change:
    """Takes back a part of an increase for which no VM exists yet."""
    if delta >= 0:
        raise Refused("INVALID_ARGUMENT", f"the target size can only be decreased by a negative number, not by {delta}")
    if (size := group.size + delta) < len(group.counted):
        exist = count_noun(len(group.counted), "VM", "exists", "exist")
        raise Refused("FAILED_PRECONDITION", f"the target size cannot be {size}: {exist}")
    return Change(size)


def delete(group: NodeGroup, names: Collection[str]) -> Change | None:
    """Removes the VMs of these names, or none of them. None if each is gone, or was named by an earlier request."""
    known = {vm.name: vm for vm in group.vms}
    leaving = {vm.name for vm in (*group.removed, *(vm for vm in group.vms if vm.deleting))}
    new = {name: known[name].uid for name in names if name in known and name not in leaving}
    if protected := sorted(name for name in new if known[name].protected):
        raise Refused("FAILED_PRECONDITION", f"VM {protected[0]} is protected by {meta.SCALE_IN}")
    if not new:
        return None
    if (size := group.size - len(new)) < group.limits.min_size:
        left = count_noun(size, "node")
        raise Refused("FAILED_PRECONDITION", f"{left} would be less than the minimum of {group.limits.min_size}")
    return Change(size, {vm.name: vm.uid for vm in group.removed} | new)


def foreign(group: NodeGroup, names: Iterable[str], owners: Mapping[str, str]) -> str:
    """Which of the VMs that exist is not one of the group, as a sentence, or "". `owners` has the UIDs of the
    controllers of all VMs of the namespace, by name."""
    for name in names:
        if owners.get(name, group.pool.uid) != group.pool.uid:
            return f"VM {name} is not one of pool {group.pool.name}"
    return ""
