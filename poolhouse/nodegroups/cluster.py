"""Reads the node groups of a namespace, and writes what the autoscaler asks for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from controllers.pool.pools import POOLS, Pool, parse_pool
from controllers.shared.vm import VM, parse_vm
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.node_groups import read_limits
from poolhouse.api.kinds.pool import POOL
from poolhouse.nodegroups.groups import Change, Groups, NodeGroup, Refused, obstacle
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict
from poolhouse.runtime.resource import VMS, Resource

log = logging.getLogger(__name__)

AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
FIELD_MANAGER = "poolhouse-cluster-autoscaler-provider"
TRIES = 5


@dataclass
class Cluster:
    """The pools of one namespace. What it has read serves one loop of the autoscaler, which begins with `refresh`, or
    until the next write. A write reads the pool again."""

    api: Api
    namespace: str
    selector: str | None = None
    """a label selector of pools; None for all pools of the namespace"""
    _groups: Groups | None = None
    _told: dict[str, str] = field(default_factory=dict)
    """the obstacles that the log has"""

    async def refresh(self) -> None:
        self._groups = None
        await self.groups()

    async def groups(self) -> Groups:
        if self._groups is None:
            pools, vms, scaled_by = await self._pools(), await self._vms(), await self._autoscalers()
            found = {name: _node_group(each, vms, scaled_by) for name, each in pools.items()}
            self._groups = Groups(
                {name: each for name, each in found.items() if isinstance(each, NodeGroup)},
                {name: each for name, each in found.items() if isinstance(each, str)},
            )
            self._tell(self._groups)
        return self._groups

    async def change(self, name: str, decide: Callable[[NodeGroup, dict[str, VM]], Change | None]) -> None:
        """Writes what `decide` returns for the group and all VMs of the namespace, by name. Raises `Refused`, Conflict
        if other clients change the pool again and again, and the API's errors."""
        self._groups = None
        for attempt in range(1, TRIES + 1):
            document = (await self._pools()).get(name)
            if document is None:
                chosen = f" with {self.selector}" if self.selector else ""
                raise Refused("NOT_FOUND", f"there is no pool {name!r} in namespace {self.namespace}{chosen}")
            vms, scaled_by = await self._vms(), await self._autoscalers()
            group = _node_group(document, vms, scaled_by)
            if not isinstance(group, NodeGroup):
                why = group or "it has no annotations of a node group"
                raise Refused("FAILED_PRECONDITION", f"pool {name} is no node group: {why}")
            change = decide(group, vms)
            if change is None:
                return
            patch = change.patch(document["metadata"]["resourceVersion"])
            try:
                await self.api.patch(POOLS, self.namespace, name, patch, field_manager=FIELD_MANAGER)
            except Conflict:
                if attempt == TRIES:
                    raise
                continue
            removed = sorted((change.removals or {}).keys() - {vm.name for vm in group.removed})
            without = f" without {', '.join(removed)}" if removed else ""
            log.info("%s/%s: replicas %d -> %d%s", self.namespace, name, group.size, change.replicas, without)
            return

    async def _pools(self) -> dict[str, Json]:
        """The selected pools by name. A request that names another pool, or no name of a pool, finds none."""
        found, _ = await self.api.list(POOLS, self.namespace, label_selector=self.selector)
        return {each["metadata"]["name"]: each for each in found}

    async def _vms(self) -> dict[str, VM]:
        pages = self.api.pages(VMS, self.namespace)
        return {vm.name: vm async for items, _ in pages for vm in map(parse_vm, items)}

    async def _autoscalers(self) -> dict[str, str]:
        """The names of HorizontalPodAutoscalers by the pool that they scale. KEDA's ScaledObjects have one, too."""
        found, _ = await self.api.list(AUTOSCALERS, self.namespace)
        return {at(each, "spec", "scaleTargetRef", "name"): each["metadata"]["name"] for each in found if _scales(each)}

    def _tell(self, groups: Groups) -> None:
        """Logs once why a pool with the annotations is no node group."""
        for name, why in groups.refused.items():
            if self._told.get(name) != why:
                log.warning("%s/%s is no node group: %s", self.namespace, name, why)
        self._told = dict(groups.refused)


def _node_group(document: Json, vms: dict[str, VM], scaled_by: dict[str, str]) -> NodeGroup | str | None:
    """The node group, why the pool is none although it has the annotations, or None without them."""
    pool = parse_pool(document)
    if not isinstance(pool, Pool):
        limits = read_limits(document["metadata"].get("annotations") or {}, None)
        return None if limits is None else "the pool's spec is invalid"
    limits = read_limits(document["metadata"].get("annotations") or {}, pool.spec.max_replicas)
    if limits is None or isinstance(limits, str):
        return limits
    if why := obstacle(pool, scaled_by):
        return why
    return NodeGroup(pool, limits, tuple(vm for vm in vms.values() if vm.owner_uid == pool.uid))


def _scales(autoscaler: Json) -> bool:
    target = at(autoscaler, "spec", "scaleTargetRef") or {}
    return target.get("kind") == POOL.kind and str(target.get("apiVersion", "")).startswith(f"{POOL.group}/")
