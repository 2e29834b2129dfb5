"""What an eviction does to a VM, and the PodDisruptionBudgets that delay it.

KubeVirt's webhook denies the eviction of a VM whose strategy migrates it, and marks the VM instead (see its
pod-eviction-admitter.go). The Pod of any other VM is deleted, as soon as no PodDisruptionBudget forbids it.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from controllers.shared.sources import Source
from controllers.shared.vmi import VMI, ObjectView, group_kind, text
from poolhouse.api.apimachinery.label_selectors import matches
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.resource import Resource

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
APP, LAUNCHER = "kubevirt.io", "virt-launcher"
"""The label of each launcher Pod. KubeVirt gives a Pod the labels of its VMI first, and then this one."""
RELEASES_UNREADY = "AlwaysAllow"
"""the value of `unhealthyPodEvictionPolicy`"""

Treatment = Literal["Stop", "Move", "Undecided", "Unknown"]


@dataclass(frozen=True, slots=True)
class VMIChoice:
    """Some of the VMIs with the labels of a set, by their UIDs."""

    operator: Literal["In", "NotIn"] = "NotIn"
    uids: tuple[str, ...] = ()


ALL_VMIS = VMIChoice()


@dataclass(frozen=True, slots=True)
class EvictionBudget(ObjectView):
    """A PodDisruptionBudget, without its status: that changes with every Pod."""

    owner_uid: str = ""
    of_vmi: bool = False
    """whether KubeVirt has made it for one VMI"""
    min_available: int | None = None
    """None for a percentage, or for maxUnavailable, with which it allows no eviction of a launcher Pod: the disruption
    controller asks the owner of the Pod for its subresource scale, and a VMI has none."""
    selector: Json | None = None
    releases_unready: bool = True
    """whether an eviction of a Pod that is not ready is always allowed"""
    abandoned: bool = False
    """whether Poolhouse has made it, and it has no owner now, for example after `kubectl delete --cascade=orphan`"""

    def selects(self, labels: Mapping[str, str]) -> bool:
        return matches(self.selector, labels)


def parse_budget(document: Json) -> EvictionBudget:
    metadata, owner = document["metadata"], controller_of(document) or {}
    made_by_us = text(metadata, "labels", meta.MANAGED_BY) == meta.POOLHOUSE
    return EvictionBudget(
        text(metadata, "namespace"),
        metadata["name"],
        text(metadata, "uid"),
        text(owner, "uid"),
        group_kind(owner) == "VirtualMachineInstance.kubevirt.io",
        typed(int, document, "spec", "minAvailable"),
        at(document, "spec", "selector"),
        text(document, "spec", "unhealthyPodEvictionPolicy") == RELEASES_UNREADY,
        made_by_us and not owner,
    )


def _by_namespace(budget: EvictionBudget) -> Iterator[Hashable]:
    if not budget.of_vmi:
        yield budget.namespace


BUDGET_SOURCE = Source(BUDGETS, parse_budget, {"namespace": _by_namespace})


def build_budget(
    namespace: str, name: str, labels: Mapping[str, str], min_available: int, owner: Json, pods: Json
) -> Json:
    """A budget with these labels, of the launcher Pods that the selector `pods` selects."""
    return {
        "apiVersion": BUDGETS.api_version,
        "kind": BUDGETS.kind,
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {**labels, meta.MANAGED_BY: meta.POOLHOUSE},
            "ownerReferences": [owner],
        },
        "spec": {
            # A number, because a percentage of Pods needs an owner with the subresource scale, and a VMI has none.
            "minAvailable": min_available,
            "selector": pods,
            # A Pod that is not ready gets no traffic, and must not stop a drain for ever.
            "unhealthyPodEvictionPolicy": RELEASES_UNREADY,
        },
    }


def selector(labels: Mapping[str, str], vmis: VMIChoice = ALL_VMIS) -> Json:
    """Selects the launcher Pods of VMIs with these labels: all of them, or those of some VMIs."""
    chosen: Json = {"matchLabels": {APP: LAUNCHER, **labels}}
    if vmis.uids:
        values = [*vmis.uids]
        chosen["matchExpressions"] = [{"key": meta.KUBEVIRT_CREATED_BY, "operator": vmis.operator, "values": values}]
    return chosen


def pod_labels(vmi: VMI) -> dict[str, str]:
    """The labels of the VMI's launcher Pod, apart from those with the VMI's name (`podLabels` in KubeVirt's
    template.go)."""
    return {**vmi.labels, APP: LAUNCHER, meta.KUBEVIRT_CREATED_BY: vmi.uid}


def treatment(strategy: str, migratable: bool, cluster: ClusterSettings | None) -> Treatment:
    """What an eviction does to a VM with this `evictionStrategy`: stops its guest, or moves it to another node."""
    if not strategy and cluster is None:
        return "Unknown"
    found = strategy or (cluster.eviction_strategy if cluster is not None else "")
    if found == "LiveMigrateIfPossible":
        return "Move" if migratable else "Stop"
    return "Stop" if found in ("", "None") else "Move"


def treatment_of(vmi: VMI, cluster: ClusterSettings | None) -> Treatment:
    """What an eviction does to a VMI. KubeVirt writes the strategy of the cluster into a VMI that has none.

    `Undecided`: the answer depends on whether the VMI can be migrated, which KubeVirt writes when the guest runs. Until
    then the Pod is not ready, and no PodDisruptionBudget of ours delays its eviction."""
    migratable, strategy = "LiveMigratable" in vmi.conditions, vmi.eviction_strategy
    undecided = not migratable and not vmi.guest.not_migratable
    if undecided and treatment(strategy, True, cluster) != treatment(strategy, False, cluster):
        return "Undecided"
    return treatment(strategy, migratable, cluster)
