"""Plans the way back from an unfinished import, until KubeVirt's pool is deleted. The plan is pure."""

from collections.abc import Iterator

from controllers.pool.import_steps import (
    CannotImport,
    Observed,
    Wait,
    Write,
    change_controller,
    identity,
    kubevirt_owner,
    kubevirt_resource,
    not_seen,
    record_name,
    vmis,
)
from controllers.pool.kubevirt_pools import FINALIZER
from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, PVCS, VMIS


def take_back(observed: Observed) -> list[Write] | Wait:
    """The next writes that take an unfinished import back, or none if no import has begun. Raises `CannotImport` if
    KubeVirt's pool is deleted."""
    record, source, target = observed.record, observed.source, observed.target
    if record is None:
        return []
    data = record["data"]
    if source is None or source["metadata"]["uid"] != data["uid"] or source["metadata"].get("deletionTimestamp"):
        raise CannotImport(
            f"KubeVirt's pool {observed.name} is deleted: the import can be completed, but not be taken back"
        )
    ours = target is not None and at(target, "metadata", "annotations", meta.IMPORTING) == data["uid"]
    if target is not None and ours:
        if writes := [*_returned(observed, target, source)]:
            return writes
        if left := observed.owned(target["metadata"]["uid"]):
            return Wait(f"VM {left[0]['metadata']['name']} is being deleted")
    wanted = {"paused": data["spec"].get("paused"), "autohealing": data["spec"].get("autohealing")}
    if any(source["spec"].get(key) != value for key, value in wanted.items()):
        if ours and (waits := not_seen(source, len(observed.owned(data["uid"])))) is not None:
            return waits
        why = "restore the spec of KubeVirt's pool"
        return [
            Write("patch", kubevirt_resource(source), observed.name, why, {"spec": wanted}, source["metadata"]["uid"])
        ]
    if target is not None and ours:
        return [Write("delete", POOLS, observed.name, "it owns no VM", {}, target["metadata"]["uid"])]
    return [Write("delete", CONTROLLER_REVISIONS, record_name(observed.name), "the import is taken back")]


def _returned(observed: Observed, target: Json, source: Json) -> Iterator[Write]:
    """The VMs with KubeVirt's pool as their controller, and disks and VMIs without labels of the new pool."""
    uid, old = target["metadata"]["uid"], source["metadata"]
    owner = kubevirt_owner(source)
    marks = {meta.POOL: None, meta.REVISION: None}
    for vm in observed.owned(uid):
        metadata = vm["metadata"]
        if metadata.get("deletionTimestamp"):
            continue  # it can get no finalizer any more
        changes = {
            "finalizers": [*(metadata.get("finalizers") or ()), FINALIZER],
            "labels": marks,
        }
        yield change_controller(vm, owner, changes, marks, "change its controller to KubeVirt's pool")
    for vmi in vmis(observed, old["uid"]):
        if at(vmi, "metadata", "labels", meta.REVISION):
            body = {"metadata": {"uid": vmi["metadata"]["uid"], "labels": marks}}
            yield Write("patch", VMIS, vmi["metadata"]["name"], "remove the labels of the new pool", body)
    for claim in observed.claims:
        if at(claim, "metadata", "labels", meta.KEPT_BY) == uid:
            labels = {meta.KEPT_BY: None, meta.KEPT_FOR: None}
            body = {"metadata": {**identity(claim["metadata"]), "labels": labels}}
            yield Write("patch", PVCS, claim["metadata"]["name"], "it is KubeVirt's again", body)
