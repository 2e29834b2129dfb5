"""The snapshots of a VM: what its page shows of them, and the acts that take and restore one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import orjson

from controllers.pool.vm_snapshots import VM_RESTORES, VM_SNAPSHOTS, parse_restore, parse_snapshot
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.output import Failed
from poolhouse.console import words
from poolhouse.console.act import VM, Act, Field, Target, Values
from poolhouse.console.cluster_state import ClusterState, Right
from poolhouse.console.page import object_path
from poolhouse.console.vm_power import waits_in_warm_pool
from poolhouse.runtime.errors import ApiError, Forbidden
from poolhouse.runtime.resource import Resource

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

FRESH_SECONDS = 10
NAME_PATTERN = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"


async def snapshots(state: ClusterState, document: Json) -> list[Json]:
    """The snapshots of the VM, of users too, the newest first, and its restores, as one part. Nothing if the cluster
    does not serve snapshots."""
    metadata, now = document["metadata"], state.now()
    namespace, name = metadata["namespace"], metadata["name"]
    if not state.pools.snapshots.taken.served or document.get("kind", VM) != VM:
        return []
    try:
        found = await _listed(state, VM_SNAPSHOTS, namespace)
        restores = await _listed(state, VM_RESTORES, namespace)
    except Forbidden:
        return [{"rows": [], "restores": [], "hidden": True}]
    except ApiError:  # the page says that the API server does not answer
        return []
    rows = [_row(each, now) for each in found if at(each, "spec", "source", "name") == name]
    target = Target(VM, document)
    missing = await state.missing_rights([RESTORE.right(target)], namespace)
    part = {
        "rows": rows[::-1],
        "restores": [_restore_line(each) for each in restores if at(each, "spec", "target", "name") == name],
        "hidden": False,
        "restorable": RESTORE.available(target),
        "missing": str(RESTORE.right(target)) if missing else "",
        "action": f"/act/{RESTORE.name}{object_path('vm', namespace, name)}",
    }
    return [part]


def is_possible(state: ClusterState, act: str) -> bool:
    """Whether the cluster serves what the act needs."""
    return act != TAKE.name or state.pools.snapshots.taken.served


async def _listed(state: ClusterState, resource: Resource, namespace: str) -> list[Json]:
    stamp = int(state.now().timestamp()) // FRESH_SECONDS
    found, _ = await state.remember((resource.plural, namespace), stamp, lambda: state.api.list(resource, namespace))
    return sorted(found, key=lambda each: str(each["metadata"]["creationTimestamp"]))


def _row(document: Json, now: datetime) -> Json:
    view, created = parse_snapshot(document), document["metadata"]["creationTimestamp"]
    state = "being deleted" if view.deleting else "failed" if view.failed else "ready" if view.ready else "in progress"
    by_pool = f"{view.pool_name}, before update {view.update}" if view.pool_name else ""
    return {
        "name": view.name,
        "state": state,
        "badge": {"ready": "healthy", "failed": "degraded"}.get(state, "progressing"),
        "age": words.age(created, now),
        "taken": by_pool or "a user, or another program",
        "message": "" if view.ready else view.problem,
        "usable": view.usable,
    }


def _restore_line(document: Json) -> str:
    view = parse_restore(document)
    state = "is complete" if view.complete else "has failed" if view.failed else "is in progress"
    problem = f": {view.problem}" if view.problem and not view.complete else ""
    return f"The restore of {at(document, 'spec', 'virtualMachineSnapshotName')} {state}{problem}"


# Acts


def _snapshot(target: Target) -> Json:
    return _object(VM_SNAPSHOTS, target, {"source": {"apiGroup": "kubevirt.io", "kind": VM, "name": target.name}})


def _restore(target: Target, snapshot: str) -> Json:
    spec = {
        "target": {"apiGroup": "kubevirt.io", "kind": VM, "name": target.name},
        "virtualMachineSnapshotName": snapshot,
        "targetReadinessPolicy": "StopTarget",
        "volumeRestorePolicy": "InPlace",  # disks keep their names
    }
    return _object(VM_RESTORES, target, spec)


def _object(resource: Resource, target: Target, spec: Json) -> Json:
    metadata = {"generateName": f"{target.name}-"}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _command(document: Callable[[Target], Json]) -> Callable[[Target], str]:
    return lambda target: f"create -f - <<< '{orjson.dumps(document(target)).decode()}'"


async def _create(api: Api, resource: Resource, target: Target, document: Json) -> str:
    metadata = {**document["metadata"], "namespace": target.namespace}
    made = await api.create(resource, {**document, "metadata": metadata}, strict=True)
    return str(made["metadata"]["name"])


async def _take(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    name = await _create(api, VM_SNAPSHOTS, target, _snapshot(target))
    return f"The snapshot {name} of {target.name} has begun"


async def _begin_restore(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    snapshot = _chosen(values)
    await _create(api, VM_RESTORES, target, _restore(target, snapshot))
    return f"{target.name} gets the state of {snapshot}. Start it once the restore is complete."


def _chosen(values: Values) -> str:
    name = values.get("snapshot", "")
    if not re.fullmatch(NAME_PATTERN, name):  # it becomes a part of a command
        raise Failed(f"snapshot: must be the name of a snapshot, not {name!r}")
    return name


def _has_no_controller(target: Target) -> bool:
    """Whether nothing but its users decides about the VM. `rollout undo --restore-snapshots` restores VMs of pools."""
    return controller_of(target.document) is None


TAKE = Act(
    "snapshot",
    "Take a snapshot",
    (VM,),
    "Copies the disks and the spec of the VM. A guest agent quiesces the file systems of a running guest.",
    _command(_snapshot),
    _take,
    lambda target: Right("create", VM_SNAPSHOTS),
    available=lambda target: not waits_in_warm_pool(target),
)
RESTORE = Act(
    "restore",
    "Restore",
    (VM,),
    "Gives the VM the disks and the spec of a snapshot. The VM stays stopped.",
    _command(lambda target: _restore(target, "{snapshot}")),
    _begin_restore,
    lambda target: Right("create", VM_RESTORES),
    lambda target, values: f"{target.name} is stopped, and loses what it has written since {_chosen(values)}.",
    (Field("snapshot", "Snapshot", required=True),),
    available=_has_no_controller,
    in_row=True,
)
