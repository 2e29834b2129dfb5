"""Plans the way back from a completed import: the pool of Poolhouse becomes a pool of KubeVirt again. The plan is pure.

As for the import, the command carries out the next writes until none is left, and continues after an interruption at
any write. The order of the phases makes it safe:

1. Our pool is paused, and checked again when its controller has confirmed the pause. If a problem has come up, the pool
   is resumed.
2. A ControllerRevision keeps the spec of KubeVirt's pool, and the templates that VMs and VMIs have.
3. KubeVirt's pool is created, paused and without autohealing, with a ControllerRevision for each of these templates.
4. Each VM changes its controller in a single write. Retained disks lose our labels.
5. KubeVirt's controller has seen all VMs. One that has missed some would create others, and delete VMs afterwards.
6. Our pool owns no VM any more, and is deleted.
7. KubeVirt's pool gets its autohealing, and is resumed, unless ours was paused.

Until phase 6, `keep_pool` of `import_return_undo` plans that the pool stays.
"""

from controllers.pool.import_return_check import check_return
from controllers.pool.import_return_objects import create_revisions, return_disks, return_vms
from controllers.pool.import_steps import (
    CannotImport,
    Observed,
    Wait,
    Write,
    create_revision,
    identity,
    kubevirt_resource,
    not_seen,
    record_name,
    return_record_name,
)
from controllers.pool.kubevirt_pools import KUBEVIRT_POOLS
from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS


def is_imported(observed: Observed) -> bool:
    """Whether the import is complete, or the way back from a completed import has begun."""
    if observed.return_record is not None:
        return True
    record, source, target = observed.record, observed.source, observed.target
    if record is None or target is None or at(target, "metadata", "annotations", meta.IMPORTING):
        return False
    return source is None or source["metadata"]["uid"] != record["data"]["uid"]


def give_back(observed: Observed, drops: tuple[str, ...] = ()) -> list[Write] | Wait:
    """The next writes, or none if KubeVirt has the pool. Raises `CannotImport`."""
    kept, target = observed.return_record, observed.target
    if kept is None:
        return _begin(observed, drops) if observed.record is not None else []
    data = kept["data"]
    if target is None or target["metadata"]["uid"] != data["uid"]:
        return _finish(observed, data)
    if observed.source is None:
        if _has_changed(target, data):
            return [
                Write("delete", CONTROLLER_REVISIONS, return_record_name(observed.name), "the pool has changed since")
            ]
        return [_create_pool(observed, data)]
    return _hand_over(observed, target, observed.source, data)


def _begin(observed: Observed, drops: tuple[str, ...]) -> list[Write] | Wait:
    target = observed.target
    returning = target and at(target, "metadata", "annotations", meta.RETURNING)
    try:
        found = check_return(observed, drops)
    except CannotImport:
        if target is None or returning is None:
            raise
        return [_pause(target, None, returning == "true", "resume the pool, because it cannot go back")]
    assert target is not None
    if returning is None:
        former = "true" if target["spec"].get("paused") else "false"
        return [_pause(target, former, True, "pause the pool of Poolhouse")]
    if not _is_confirmed(target):
        return Wait("the controller of Poolhouse has not confirmed the pause")
    name = return_record_name(observed.name)
    return [create_revision(observed, name, found.data, "keep the spec of KubeVirt's pool")]


def _pause(target: Json, returning: str | None, paused: bool, why: str) -> Write:
    metadata = target["metadata"]
    body = {"metadata": {**identity(metadata), "annotations": {meta.RETURNING: returning}}, "spec": {"paused": paused}}
    return Write("patch", POOLS, metadata["name"], why, body)


def _is_confirmed(target: Json) -> bool:
    """Reconciles of a pool follow each other: when one has written this status, no earlier one is at work."""
    status = target.get("status") or {}
    paused = any(each["type"] == "Paused" and each["status"] == "True" for each in status.get("conditions") or ())
    return paused and status.get("observedGeneration") == target["metadata"]["generation"]


def kubevirt_pool(observed: Observed, data: Json) -> Json:
    """The pool of KubeVirt, paused."""
    metadata = data["metadata"]
    annotations = {**metadata.get("annotations", {}), meta.RETURNING: data["uid"]}
    spec = {key: value for key, value in data["spec"].items() if key != "autohealing"}
    return {
        "apiVersion": f"{KUBEVIRT_POOLS.group}/{observed.served}",
        "kind": KUBEVIRT_POOLS.kind,
        "metadata": {
            **metadata,
            "annotations": annotations,
            "namespace": observed.namespace,
            "name": observed.name,
        },
        "spec": {**spec, "paused": True},
    }


def _has_changed(target: Json, data: Json) -> bool:
    """An autoscaler may go on setting the replicas, which the paused pool does not obey."""
    return {**target["spec"], "replicas": 0} != {**data["poolhouse"], "replicas": 0}


def _create_pool(observed: Observed, data: Json) -> Write:
    body = kubevirt_pool(observed, data)
    return Write("create", kubevirt_resource(body), observed.name, "create KubeVirt's pool, paused", body)


def _hand_over(observed: Observed, target: Json, source: Json, data: Json) -> list[Write] | Wait:
    name, metadata = observed.name, source["metadata"]
    if at(metadata, "annotations", meta.RETURNING) != data["uid"]:
        raise CannotImport(f"the pool {name} of KubeVirt was not created by this command")
    if metadata.get("deletionTimestamp"):
        raise CannotImport(f"the pool {name} of KubeVirt is being deleted")
    if _has_changed(target, data):
        raise CannotImport(
            f"the spec of pool {name} of Poolhouse has changed on the way back; restore it from"
            f" {return_record_name(name)}, and run the command again"
        )
    if writes := [*create_revisions(observed, source, data)]:
        return writes
    if writes := [*return_vms(observed, target, source, data), *return_disks(observed, target, data)]:
        return writes
    if left := observed.owned(target["metadata"]["uid"]):
        return Wait(f"VM {left[0]['metadata']['name']} is being deleted")
    if (waits := not_seen(source, len(observed.owned(metadata["uid"])))) is not None:
        return waits
    return [Write("delete", POOLS, name, "it owns no VM", {}, target["metadata"]["uid"])]


def _finish(observed: Observed, data: Json) -> list[Write]:
    """The writes that remain after Poolhouse's pool is deleted."""
    source, record = observed.source, observed.record
    if source is None:
        raise CannotImport(f"both pools {observed.name} are gone; {return_record_name(observed.name)} has the spec")
    if at(source, "metadata", "annotations", meta.RETURNING) == data["uid"]:
        spec = {"paused": bool(data["spec"].get("paused")), "autohealing": data["spec"].get("autohealing")}
        body = {"metadata": {"annotations": {meta.RETURNING: None}}, "spec": spec}
        why = "KubeVirt has the pool" if spec["paused"] else "resume KubeVirt's pool"
        return [Write("patch", kubevirt_resource(source), observed.name, why, body, source["metadata"]["uid"])]
    # The record of the import is deleted with our pool, if not by this write.
    if record is not None and record["metadata"]["uid"] == data["record"]:
        return [Write("delete", CONTROLLER_REVISIONS, record_name(observed.name), "the import is taken back")]
    return [Write("delete", CONTROLLER_REVISIONS, return_record_name(observed.name), "the way back is complete")]
