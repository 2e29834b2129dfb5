"""The views of VirtualMachineSnapshots and VirtualMachineRestores that a pool has created."""

import hashlib
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self

from controllers.shared.sources import ListedStore, OptionalStore, Source
from controllers.shared.vm import PERSISTENT_STATE, VM
from controllers.shared.vmi import ObjectView, parse_count, text
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import Resource

GROUP = "snapshot.kubevirt.io"
VM_SNAPSHOTS = Resource(GROUP, "v1beta1", "virtualmachinesnapshots", "VirtualMachineSnapshot")
VM_RESTORES = Resource(GROUP, "v1beta1", "virtualmachinerestores", "VirtualMachineRestore")
RESTORE_NAME = "restore.kubevirt.io/name"
"""KubeVirt's annotation of a claim: the VirtualMachineRestore that has created it"""


@dataclass(frozen=True, slots=True)
class VMSnapshot(ObjectView):
    pool_name: str = ""
    vm_name: str = ""
    vm_uid: str = ""
    revision: str = ""
    """label of the VM's revision when the snapshot was taken"""
    update: int = 0
    """number of the VM's update before which the snapshot was taken"""
    created_at: str = ""
    ready: bool = False
    failed: bool = False
    problem: str = ""
    deleting: bool = False

    @property
    def usable(self) -> bool:
        return self.ready and not self.failed and not self.deleting


@dataclass(frozen=True, slots=True)
class VMRestore(ObjectView):
    pool_name: str = ""
    vm_name: str = ""
    vm_uid: str = ""
    request: str = ""
    """the pool's annotation that asked for the restore"""
    snapshot: str = ""
    """name of the VirtualMachineSnapshot"""
    complete: bool = False
    failed: bool = False
    problem: str = ""
    state_claim: str = ""
    """the claim into which KubeVirt restores the VM's TPM and EFI variables; empty if it restores none"""


def snapshot_name(vm: VM) -> str:
    """The name of the snapshot before the VM's next update. It depends on the VM's state only, so that a retry takes no
    second snapshot, and that the snapshot of an earlier stay at the same revision does not count."""
    identity = f"{vm.uid} {vm.revision} {vm.updates + 1}"
    return f"{vm.name}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"


def restore_name(vm: VM, request: str) -> str:
    return f"{vm.name}-{hashlib.sha256(f'{vm.uid} {request}'.encode()).hexdigest()[:10]}"


def parse_snapshot(document: Json) -> VMSnapshot:
    metadata, status = document["metadata"], document.get("status") or {}
    phase, conditions = text(status, "phase"), _true_conditions(status)
    problem = text(status, "error", "message") or conditions.get("Failure", "") or _progress(status)
    return VMSnapshot(
        **_facts(metadata),
        revision=text(metadata, "labels", meta.REVISION),
        update=parse_count(text(metadata, "annotations", meta.UPDATES)),
        created_at=text(metadata, "creationTimestamp"),
        ready=status.get("readyToUse") is True,
        failed=phase == "Failed" or "Failure" in conditions,
        problem=problem,
        deleting="deletionTimestamp" in metadata,
    )


def parse_restore(document: Json) -> VMRestore:
    metadata, status = document["metadata"], document.get("status") or {}
    conditions = _true_conditions(status)
    return VMRestore(
        **_facts(metadata),
        request=text(metadata, "annotations", meta.RESTORE),
        snapshot=text(document, "spec", "virtualMachineSnapshotName"),
        complete=status.get("complete") is True,
        failed="Failure" in conditions,
        problem=conditions.get("Failure", "") or _progress(status),
        state_claim=next(
            (
                text(each, "persistentVolumeClaim")
                for each in status.get("restores") or ()
                if text(each, "volumeName").startswith(PERSISTENT_STATE)
            ),
            "",
        ),
    )


NOT_RUNNING = "/halted"
"""The end of the annotation with the run strategy of a VM that did not run."""


def _facts(metadata: Json) -> Json:
    return {
        "namespace": text(metadata, "namespace"),
        "name": metadata["name"],
        "uid": text(metadata, "uid"),
        "pool_name": text(metadata, "labels", meta.POOL),
        "vm_name": text(metadata, "labels", meta.VM),
        "vm_uid": text(metadata, "labels", meta.VM_UID),
    }


def _true_conditions(status: Json) -> dict[str, str]:
    """The messages of the conditions that are True. KubeVirt writes the message into the reason."""
    found = (each for each in status.get("conditions") or () if each.get("status") == "True")
    return {text(each, "type"): text(each, "message") or text(each, "reason") for each in found}


def _progress(status: Json) -> str:
    """Why the operation is not complete: the text of the condition Progressing, whatever its status."""
    for each in status.get("conditions") or ():
        if each.get("type") == "Progressing":
            return text(each, "message") or text(each, "reason")
    return ""


def _by_pool(view: VMSnapshot | VMRestore) -> Iterator[Hashable]:
    yield view.namespace, view.pool_name


SNAPSHOT_SOURCE = Source(VM_SNAPSHOTS, parse_snapshot, {"pool": _by_pool}, label_selector=meta.VM_UID)
RESTORE_SOURCE = Source(VM_RESTORES, parse_restore, {"pool": _by_pool}, label_selector=meta.VM_UID)


@dataclass(frozen=True)
class SnapshotStores:
    """The stores of both kinds, which the cluster may not serve."""

    taken: OptionalStore[VMSnapshot] = field(default_factory=ListedStore)
    restores: OptionalStore[VMRestore] = field(default_factory=ListedStore)

    @classmethod
    async def list(cls, api: Api, namespace: str) -> Self:
        """The objects that the namespace has now. Raises the API server's error."""
        taken = await SNAPSHOT_SOURCE.list_optional(api, namespace)
        return cls(taken, await RESTORE_SOURCE.list_optional(api, namespace))


def storage_requests(template: Json) -> tuple[str, ...]:
    """The storage requests of a VM's disks, as quantities."""
    found = []
    for each in at(template, "spec", "dataVolumeTemplates") or ():
        claim = at(each, "spec", "storage") or at(each, "spec", "pvc") or {}
        if (quantity := at(claim, "resources", "requests", "storage")) is not None:
            found.append(str(quantity))
    return tuple(found)


def with_restores(vms: Iterable[VM]) -> tuple[VM, ...]:
    """The VMs, of which those should run that ran before a restore: KubeVirt has halted them only for its duration.

    The VM says so itself, because its VirtualMachineRestore may disappear: with its CRD, or by the hand of a user."""
    return tuple(replace(vm, should_run=True, run_strategy=vm.run_strategy_before) if _ran(vm) else vm for vm in vms)


def _ran(vm: VM) -> bool:
    before = vm.run_strategy_before
    ran = bool(before) and not before.endswith(NOT_RUNNING)
    return ran and vm.awaits_state and vm.run_strategy in ("Halted", before)
