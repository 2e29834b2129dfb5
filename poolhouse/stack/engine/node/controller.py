"""Registers the nodes and updates their readiness, as the kubelet and KubeVirt's node labeller do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import NODE_LOST
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.node_lease import NodeLease
from poolhouse.runtime.resource import NODES
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.objects import Node, either
from poolhouse.stack.engine.resources import NODE_NAMES, SCHEDULABLE_LABEL, condition, merge_conditions
from poolhouse.stack.engine.writes import create_absent

# Most stacks do not run Kubernetes' node lifecycle controller, so the engine sets its taints. With that controller both
# agree: a taint that the engine finds on a node that is not ready stays.
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


@dataclass(frozen=True)
class NodeHardware:
    machine_types: Sequence[str] = ("pc-q35-7.2", "q35")
    cpu_model: str = "qemu64"
    cpus: int = 2
    memory: int = 64 << 40
    """allocatable bytes; the default is for simulated VMs, which use no memory"""
    kvm: bool = False


def new_node(name: str, hardware: NodeHardware) -> Json:
    """Returns a Node with the labels of KubeVirt's node labeller."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node-role.kubernetes.io/worker": "",
        "cpumanager": "false",
        SCHEDULABLE_LABEL: "true",
        f"cpu-model.node.kubevirt.io/{hardware.cpu_model}": "true",
        f"host-model-cpu.node.kubevirt.io/{hardware.cpu_model}": "true",
        **{f"machine-type.node.kubevirt.io/{machine}": "true" for machine in hardware.machine_types},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def fixed_node_status(name: str, hardware: NodeHardware) -> Json:
    """Returns the fields of a node's status that do not change."""
    resources = {
        "cpu": str(hardware.cpus),
        "memory": f"{hardware.memory >> 10}Ki",
        # The nodes run VMs without Pods, and no kubelet would start a Pod that a scheduler places there.
        "pods": "0",
        "devices.kubevirt.io/kvm": "1k" if hardware.kvm else "0",
    }
    info = {
        "architecture": "amd64",
        "operatingSystem": "linux",
        "containerRuntimeVersion": "poolhouse://local",
        "kubeletVersion": "poolhouse",
        **dict.fromkeys(("kubeProxyVersion", "bootID", "kernelVersion", "machineID", "osImage", "systemUUID"), ""),
    }
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
    return {"capacity": resources, "allocatable": resources, "nodeInfo": info, "addresses": addresses}


def desired_node(document: Json, problem: str | None, fixed: Json, moment: datetime) -> Json:
    """Returns the desired Node. `problem` is the reason why the node is not ready. Keeps metadata of other clients."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    if (metadata.get("annotations") or {}).get(NODE_LOST) == "true":
        problem = "Kubelet stopped posting node status."
    ready = (
        condition("Ready", True, "KubeletReady", "the node's libvirt answers")
        if problem is None
        else condition("Ready", "Unknown", "NodeStatusUnknown", problem)
    )
    status = document.get("status") or {}
    before = status.get("conditions") or ()
    obsolete = (NOT_READY, UNREACHABLE) if problem is None else (NOT_READY,)
    taints = [taint for taint in spec.get("taints") or () if taint.get("key") not in obsolete]
    if problem is not None and not any(taint.get("key") == UNREACHABLE for taint in taints):
        taints.append({"key": UNREACHABLE, "effect": "NoSchedule"})
    return {
        **document,
        "metadata": {
            **metadata,
            "labels": {**(metadata.get("labels") or {}), SCHEDULABLE_LABEL: str(problem is None).lower()},
        },
        "spec": {**spec, "taints": taints},
        "status": {**status, **fixed, "conditions": merge_conditions(before, [ready], moment)},
    }


class NodeController:
    """Writes Nodes. `why_not_ready` returns the reason why a node is not ready, or None."""

    def __init__(
        self, api: Api, informers: Informers, hardware: NodeHardware, why_not_ready: Callable[[str], str | None]
    ) -> None:
        self._api, self._informers = api, informers
        self._hardware, self._why_not_ready = hardware, why_not_ready
        self.controller: Controller[str] = Controller("nodes", self.reconcile, workers=2, metrics=api.metrics)
        informers.nodes.subscribe(self._changed)

    def _changed(self, old: Node | None, new: Node | None) -> None:
        node = either(old, new)
        if node.name in NODE_NAMES:
            self.controller.enqueue(node.name)

    @property
    def leases(self) -> Sequence[NodeLease]:
        """The Leases without which Kubernetes' node lifecycle controller takes the nodes for lost. A simulated outage
        ends none: the condition Ready shows it."""
        return [NodeLease(self._api, name, partial(self._uid, name)) for name in NODE_NAMES]

    def _uid(self, name: str) -> str:
        node = self._informers.nodes.store.get(("", name))
        return "" if node is None else node.uid

    async def register(self) -> None:
        for name in NODE_NAMES:
            await create_absent(self._api, NODES, new_node(name, self._hardware))
            self.controller.enqueue(name)

    async def reconcile(self, name: str) -> float | None:
        document = await find(self._api, NODES, None, name)
        if document is None:
            await self._api.create(NODES, new_node(name, self._hardware))
            return 0.1
        wanted = desired_node(
            document, self._why_not_ready(name), fixed_node_status(name, self._hardware), self._informers.now()
        )
        changed = {part: merge_patch(document.get(part) or {}, wanted[part]) for part in ("metadata", "spec")}
        if any(changed.values()):
            await self._api.patch(NODES, None, name, changed)
        if status := merge_patch(document.get("status") or {}, wanted["status"]):
            await self._api.patch(NODES, None, name, {"status": status}, subresource="status")
        return None
