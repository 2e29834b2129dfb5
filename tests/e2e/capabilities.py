"""What a cluster has: the versions of KubeVirt and CDI, feature gates, snapshots, and nodes that run VMs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings, choose
from poolhouse.api.kubevirt.versions import PLUGINS, SIDECAR, SNAPSHOT, is_enabled
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import CRDS, KUBEVIRTS, NODES, Resource
from tests.e2e.target import Target

Json = dict[str, Any]

CDIS = Resource("cdi.kubevirt.io", "v1beta1", "cdis", "CDI", namespaced=False)
SNAPSHOT_CLASSES = Resource("snapshot.storage.k8s.io", "v1", "volumesnapshotclasses", "VolumeSnapshotClass", False)
SCHEDULABLE = "kubevirt.io/schedulable"


@dataclass(frozen=True)
class Capabilities:
    kubevirt: str = ""
    """version; empty without KubeVirt"""
    cdi: str = ""
    """version, or `embedded`; empty without CDI"""
    kubernetes: str = ""
    snapshots: bool = False
    nodes: int = 0
    """ready nodes that run VMs"""
    hardware_record: bool = False
    """whether Poolhouse can hold devices that a spec cannot hold, such as controllers"""
    sources: frozenset[str] = frozenset()
    """what disks can be made of, by the names of the options"""
    changes: frozenset[str] = frozenset()
    """what the tests may do to the whole cluster, by the names of the options"""
    embedded: bool = False

    def missing(self, needs: Json) -> str:
        """Why a test with these needs cannot run; empty if it can."""
        for need, wanted in needs.items():
            match need:
                case "cdi" if wanted and not self.cdi:
                    return "the cluster has no CDI"
                case "snapshots" if wanted and not self.snapshots:
                    return "the cluster takes no snapshots of VMs"
                case "hardware_record" if wanted and not self.hardware_record:
                    return "KubeVirt has neither of the feature gates Sidecar and Plugins"
                case "nodes" if self.nodes < wanted:
                    return f"the cluster has {self.nodes} nodes for VMs; the test needs {wanted}"
                case "change" if wanted not in self.changes:
                    return f"no --{wanted} is given: it changes the whole cluster"
                case "source" if wanted != "blank" and wanted not in self.sources:
                    return f"no --{str(wanted).replace('_', '-')} is given"
                case "source" if not self.cdi:
                    return "the cluster has no CDI"
                case "embedded" if wanted and not self.embedded:
                    return "only guests of the embedded stack say what they see"
                case "real" if wanted and self.embedded:
                    return f"the embedded stack has no {wanted}"
        return ""

    def __str__(self) -> str:
        engine = " (the embedded engine)" if self.embedded else ""
        cdi = "" if self.embedded else f"CDI {self.cdi}" if self.cdi else "no CDI"
        parts = [
            f"KubeVirt {self.kubevirt or 'of an unknown version'}{engine}",
            cdi,
            f"Kubernetes {self.kubernetes}",
            f"{self.nodes} nodes",
            "snapshots" if self.snapshots else "no snapshots",
            "hardware record" if self.hardware_record else "",
        ]
        return ", ".join(filter(None, parts))


async def look(api: Api, target: Target) -> Capabilities:
    """Reads from the cluster what it has."""
    kubevirt = choose(await _items(api, KUBEVIRTS)) or {}
    settings = ClusterSettings.of(kubevirt)
    embedded = target.embedded is not None
    served = {str(at(each, "metadata", "name")) for each in await _items(api, CRDS)}
    cdis, classes = await _items(api, CDIS), await _items(api, SNAPSHOT_CLASSES)
    cdi = str(at(cdis[0], "status", "observedVersion") or "of an unknown version") if cdis else ""
    version = await api.request("GET", "/version")
    takes = "virtualmachinesnapshots.snapshot.kubevirt.io" in served and (embedded or bool(classes))
    snapshots, *record = (
        is_enabled(gate, settings.release, settings.feature_gates, settings.disabled_feature_gates)
        for gate in (SNAPSHOT, SIDECAR, PLUGINS)
    )
    changes = {"release": embedded or target.chart, "upgrade-kubevirt-to": target.kubevirt_manifest}
    return Capabilities(
        kubevirt=next(iter(settings.versions), ""),
        cdi="embedded" if embedded else cdi,
        kubernetes=str(at(version, "gitVersion") or ""),
        snapshots=takes and snapshots,
        hardware_record=embedded or any(record),
        nodes=count_nodes(await _items(api, NODES)),
        sources=frozenset(target.sources),
        changes=frozenset(name for name, given in changes.items() if given),
        embedded=embedded,
    )


def count_nodes(nodes: Iterable[Json]) -> int:
    """How many of the nodes are ready, not cordoned, and schedulable for KubeVirt."""
    return sum(
        at(node, "metadata", "labels", SCHEDULABLE) == "true"
        and not at(node, "spec", "unschedulable")
        and ("Ready", "True") in [(c.get("type"), c.get("status")) for c in at(node, "status", "conditions") or ()]
        for node in nodes
    )


async def _items(api: Api, resource: Resource) -> list[Json]:
    try:
        return (await api.list(resource))[0]
    except NotFound:
        return []
