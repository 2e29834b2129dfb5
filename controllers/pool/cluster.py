"""What pools of a cluster share: its nodes and settings, and the limits of its namespaces."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

from controllers.pool.pools import Pool
from controllers.shared.evictions import EvictionBudget
from controllers.shared.replica_limits import unknown_limit
from controllers.shared.sources import NODE_SOURCE, ListedStore, Node, OptionalStore
from controllers.shared.vm import VM
from controllers.shared.vmi import VMI
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden, NotFound
from poolhouse.runtime.resource import KUBEVIRTS, Key
from poolhouse.runtime.store import Store

SCHEDULABLE = "kubevirt.io/schedulable"
"""KubeVirt's label of nodes that can run VMs"""


@dataclass(frozen=True)
class Cluster:
    nodes: Store[Node] = field(default_factory=NODE_SOURCE.store)
    settings: Callable[[], ClusterSettings | None] = lambda: None
    """Returns the settings of the KubeVirt object; None if they are unknown."""
    budgets: OptionalStore[EvictionBudget] = field(default_factory=ListedStore)
    replica_limit: Callable[[str], int | None] = unknown_limit
    """Returns the replica limit of a namespace; None if it is unknown."""
    _last_nodes: dict[Key, str] = field(default_factory=dict, repr=False, compare=False)
    """The last node of each VM, because a VM that restarts has no node for a while."""

    @classmethod
    async def list(cls, api: Api) -> Self:
        """What the user may list of it."""
        try:
            nodes = await NODE_SOURCE.list(api, "")
        except Forbidden:
            nodes = NODE_SOURCE.store()
        try:
            kubevirts = [each async for items, _ in api.pages(KUBEVIRTS, "") for each in items]
        except (Forbidden, NotFound):
            kubevirts = []
        settings = ClusterSettings.chosen(kubevirts)
        return cls(nodes, lambda: settings)

    def forget(self, vm: Key) -> None:
        self._last_nodes.pop(vm, None)

    def zones(self, pool: Pool, vms: Iterable[VM]) -> dict[str, str]:
        """The known zones of the VMs, by name of the VM."""
        label, last, found = pool.spec.failure_domains.topology_key, self._last_nodes, {}
        zones = {node.name: zone for node in self.nodes.all() if (zone := node.labels.get(label))} if label else {}
        for vm in vms if zones else ():
            if vm.vmi is not None and vm.vmi.node:
                node = last[vm.key] = vm.vmi.node
            else:
                node = last.get(vm.key, "")
            if node in zones:
                found[vm.name] = zones[node]
        return found

    def readiness(self, vms: Iterable[VM], outages: Iterable[str]) -> dict[str, bool]:
        """Whether the nodes of the VMs, and those with an outage in the log, are ready. A node that does not exist is
        not. A user who may not see nodes knows the outages of the log."""
        if not len(self.nodes):
            return dict.fromkeys(outages, False)
        names = {*outages, *(vm.vmi.node for vm in vms if vm.vmi is not None and vm.vmi.node)}
        found = {name: self.nodes.get(("", name)) for name in names}
        return {name: node is not None and node.ready for name, node in found.items()}

    def leaving(self, vmis: Iterable[VMI]) -> frozenset[str]:
        """Those nodes of the VMIs that are cordoned or drained."""
        names = {vmi.node for vmi in vmis}
        return frozenset(name for name in names if (node := self.nodes.get(("", name))) is not None and node.leaving)

    def targets(self) -> frozenset[str] | None:
        """Two nodes that can take VMs, or as many as there are. None for a user who may not see nodes."""
        able = (node for node in self.nodes.all() if node.ready and node.labels.get(SCHEDULABLE) == "true")
        return frozenset(islice((node.name for node in able if not node.leaving), 2)) if len(self.nodes) else None

    def budgets_of(self, namespace: str) -> tuple[EvictionBudget, ...] | None:
        """The PodDisruptionBudgets of the namespace; None if they are unknown."""
        return tuple(self.budgets.by("namespace", namespace)) if self.budgets.served else None
