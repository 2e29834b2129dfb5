"""Compares the virtual Node with what it should be, and decides the one request that changes it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.quantity import to_fraction
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta

TAINT = {"key": meta.WARM_VM, "effect": "NoSchedule"}
"""Keeps away Pods that do not tolerate it: only Pods that are meant for warm VMs can run there."""

CONDITIONS: Mapping[str, tuple[str, str, str]] = {
    "Ready": ("True", "KubeletReady", "Poolhouse's controllers give its Pods VMs of warm pools"),
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "each Pod has the memory of its VM"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "each Pod has the disks of its VM"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "each Pod has the processes of its VM"),
    "NetworkUnavailable": ("False", "NoRouteNeeded", "each Pod has the address of its VM"),
}
"""Status, reason and message by type, with the reasons of the kubelet. Kubernetes' node lifecycle controller sets them
to Unknown when the Lease is not renewed, and then the controllers set them again."""


@dataclass(frozen=True)
class NodeFacts:
    """What the Node says of itself, apart from its capacity."""

    name: str
    version: str
    """version of the API server, such as v1.34.4"""
    architecture: str
    """such as amd64"""
    endpoint: tuple[str, int] | None = None
    """address and port of the kubelet endpoint"""

    @property
    def labels(self) -> Json:
        return {
            "type": "virtual-kubelet",
            meta.VIRTUAL_NODE: "true",
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": self.architecture,
            # A load balancer of a cloud reaches Pods through nodes, and this one forwards nothing.
            "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        }

    @property
    def info(self) -> Json:
        """All fields are required; those without a meaning here are empty."""
        return {
            "architecture": self.architecture,
            "operatingSystem": "linux",
            "kubeletVersion": f"{self.version}-poolhouse",
            "containerRuntimeVersion": "poolhouse://warm-vms",
            **dict.fromkeys(("kubeProxyVersion", "bootID", "kernelVersion", "machineID", "osImage", "systemUUID"), ""),
        }


@dataclass(frozen=True)
class CreateNode:
    document: Json


@dataclass(frozen=True)
class PatchNode:
    """A merge patch of the Node, or of its status."""

    patch: Json
    subresource: str | None = None


@dataclass(frozen=True)
class NotOurs:
    """A Node of another program has the name. It is left alone."""

    message: str


Step = CreateNode | PatchNode | NotOurs


def plan(found: Json | None, facts: NodeFacts, resources: Json, now: datetime) -> Step | None:
    """The next request; None if the Node is as it should be. What other programs add to the Node stays."""
    if found is None:
        return CreateNode(_new_node(facts, resources, now))
    metadata = found["metadata"]
    if meta.VIRTUAL_NODE not in (metadata.get("labels") or {}):
        return NotOurs(
            f"Node {facts.name} exists and has no label {meta.VIRTUAL_NODE}, so it belongs to another program: "
            "give the virtual node another name, or delete that Node"
        )
    if metadata.get("deletionTimestamp"):
        return None
    labels, taints = facts.labels, (found.get("spec") or {}).get("taints") or []
    changed: Json = {}
    if missing := merge_patch(metadata.get("labels") or {}, {**(metadata.get("labels") or {}), **labels}):
        changed["metadata"] = {"labels": missing}
    if not any(taint.get("key") == TAINT["key"] and taint.get("effect") == TAINT["effect"] for taint in taints):
        changed["spec"] = {"taints": [*taints, TAINT]}
    if changed:
        return PatchNode(_guarded(changed, metadata))
    status = found.get("status") or {}
    if patch := merge_patch(status, {**status, **_status(status, facts, resources, now)}):
        return PatchNode(_guarded({"status": patch}, metadata), "status")
    return None


def _guarded(patch: Json, metadata: Json) -> Json:
    """The patch replaces lists, so it must not meet a Node that has changed since."""
    own = patch.get("metadata") or {}
    return {**patch, "metadata": {**own, "resourceVersion": metadata["resourceVersion"]}}


def _new_node(facts: NodeFacts, resources: Json, now: datetime) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": facts.name, "labels": facts.labels},
        "spec": {"taints": [TAINT]},
        "status": _status({}, facts, resources, now),
    }


def _status(before: Json, facts: NodeFacts, resources: Json, now: datetime) -> Json:
    return {
        "capacity": _quantities(before.get("capacity") or {}, resources),
        "allocatable": _quantities(before.get("allocatable") or {}, resources),
        "nodeInfo": facts.info,
        **_endpoint(facts),
        "conditions": _conditions(before.get("conditions") or (), now),
    }


def _endpoint(facts: NodeFacts) -> Json:
    """Without a host name, which API servers would look up first."""
    address, port = facts.endpoint or ("", 0)
    addresses = [{"type": "InternalIP", "address": address}] if address else []
    return {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}


def _quantities(before: Json, wanted: Json) -> Json:
    """The stored quantities if they have the same values: the API server has its own spelling, such as 1k for 1000."""
    same = {key: to_fraction(value) for key, value in before.items()} == {k: to_fraction(v) for k, v in wanted.items()}
    return before if same else wanted


def _conditions(before: Iterable[Json], now: datetime) -> list[Json]:
    """The conditions, of which unchanged ones keep their times, and those of other programs stay."""
    time, known = format_time(now), {each["type"]: each for each in before}
    found = {}
    for type, (status, reason, message) in CONDITIONS.items():
        wanted = {"type": type, "status": status, "reason": reason, "message": message}
        old = known.get(type)
        if old is not None and {key: old.get(key) for key in wanted} == wanted:
            found[type] = old
        else:
            since = old.get("lastTransitionTime") if old is not None and old.get("status") == status else time
            found[type] = {**wanted, "lastHeartbeatTime": time, "lastTransitionTime": since}
    return [*{**known, **found}.values()]
