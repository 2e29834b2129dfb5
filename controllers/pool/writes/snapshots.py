"""Writes of snapshots of VMs, and of their restores."""

from contextlib import suppress

from controllers.pool.actions import ForgetRestore, PruneRestore, PruneSnapshot, Restore, TakeSnapshot
from controllers.pool.pools import Pool
from controllers.pool.vm_snapshots import VM_RESTORES, VM_SNAPSHOTS
from controllers.pool.writes.context import Writing, read_member
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.errors import AlreadyExists, NotFound
from poolhouse.runtime.resource import VMS


async def take_snapshot(to: Writing, a: TakeSnapshot) -> None:
    with suppress(AlreadyExists):  # the name depends on the VM's state, so an earlier write took this snapshot
        await to.api.create(VM_SNAPSHOTS, build_snapshot(to.owner, a))


async def restore(to: Writing, a: Restore) -> None:
    """Raises Conflict where `read_member` does: a restore replaces the contents of the VM's disks."""
    live = await read_member(to.api, to.namespace, to.owner.uid, a.name, a.uid)
    noted = {meta.RESTORE: a.request, meta.RUN_STRATEGY: a.run_strategy}
    if not noted.items() <= (live["metadata"].get("annotations") or {}).items():
        version = {"uid": a.uid, "resourceVersion": live["metadata"]["resourceVersion"]}
        await to.api.patch(VMS, to.namespace, a.name, {"metadata": {**version, "annotations": noted}})
    with suppress(AlreadyExists):
        await to.api.create(VM_RESTORES, build_restore(to.owner, a), strict=True)


async def forget_restore(to: Writing, a: ForgetRestore) -> None:
    annotations = {meta.RESTORED: a.request, meta.RESTORE: None, meta.RUN_STRATEGY: None}
    with suppress(NotFound):
        await to.api.patch(VMS, to.namespace, a.name, {"metadata": {"uid": a.uid, "annotations": annotations}})


async def prune_snapshot(to: Writing, a: PruneSnapshot) -> None:
    with suppress(NotFound):
        await to.api.delete(VM_SNAPSHOTS, to.namespace, a.name, uid=a.uid)


async def prune_restore(to: Writing, a: PruneRestore) -> None:
    with suppress(NotFound):
        await to.api.delete(VM_RESTORES, to.namespace, a.name, uid=a.uid)


def build_snapshot(pool: Pool, action: TakeSnapshot) -> Json:
    """The VirtualMachineSnapshot. The ControllerRevision owns it, and not the VM, so it outlives the VM. Without the
    ControllerRevision, the pool owns it."""
    if action.owner_uid:
        owner = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "name": action.owner, "uid": action.owner_uid}
    else:
        owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachinePool", "name": pool.name, "uid": pool.uid}
    labels = {**_labels(pool, action), **({meta.REVISION: action.revision} if action.revision else {})}
    return {
        "apiVersion": VM_SNAPSHOTS.api_version,
        "kind": VM_SNAPSHOTS.kind,
        "metadata": {
            "namespace": pool.namespace,
            "name": action.snapshot,
            "labels": labels,
            "annotations": {meta.UPDATES: str(action.update)},
            "ownerReferences": [owner],
        },
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": action.name}},
    }


def build_restore(pool: Pool, action: Restore) -> Json:
    """The VirtualMachineRestore. KubeVirt makes the VM its owner."""
    return {
        "apiVersion": VM_RESTORES.api_version,
        "kind": VM_RESTORES.kind,
        "metadata": {
            "namespace": pool.namespace,
            "name": action.restore,
            "labels": _labels(pool, action),
            "annotations": {meta.RESTORE: action.request},
        },
        "spec": {
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": action.name},
            "virtualMachineSnapshotName": action.snapshot,
            "targetReadinessPolicy": "StopTarget",
            # With other policies, KubeVirt gives the disks new names, and the pool's VMs need the names of theirs.
            "volumeRestorePolicy": "InPlace",
        },
    }


def _labels(pool: Pool, action: TakeSnapshot | Restore) -> dict[str, str]:
    return {meta.POOL: pool.name, meta.VM: action.name, meta.VM_UID: action.uid}
