"""Plans the import of a pool of KubeVirt. The plan is pure: it returns the next writes for what was observed.

The command observes, carries out the next writes, and observes again until no write is left. After an interruption at
any write, the same command therefore continues. The order of the phases makes it safe:

1. A ControllerRevision (the record) keeps the old pool's spec and the templates of its revisions.
2. KubeVirt's pool is paused, and its autohealing is removed: KubeVirt heals paused pools too.
3. The new pool is created, paused, with a ControllerRevision for each template that a VM or VMI has.
4. Each VM changes its controller from one pool to the other in a single write, so that it always has exactly one.
5. KubeVirt's pool owns no VM any more, and is deleted.
6. The new pool is resumed, unless the old one was paused.

Until phase 5, `take_back` plans the way back, and `give_back` of `import_return` after the last phase.
"""

from controllers.pool.import_check import check
from controllers.pool.import_members import adopt, retain
from controllers.pool.import_return_undo import keep_pool
from controllers.pool.import_revisions import create_record, store_revisions
from controllers.pool.import_steps import (
    CannotImport,
    Observed,
    Wait,
    Write,
    delete_source,
    kubevirt_resource,
    not_paused,
    record_name,
)
from controllers.pool.kubevirt_pools import convert, pool_metadata
from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS


def plan(observed: Observed, drops: tuple[str, ...] = ()) -> list[Write] | Wait:
    """The next writes, or none if the import is complete. Raises `CannotImport`."""
    record, source, target = observed.record, observed.source, observed.target
    if observed.returns:
        return keep_pool(observed)
    if record is None:
        check(observed, drops)
        return [create_record(observed, drops)]
    data = record["data"]
    if drops and sorted(drops) != data["drops"]:
        raise CannotImport(f"the import has begun with --drop {' --drop '.join(data['drops']) or 'nothing'}")
    if source is not None and source["metadata"]["uid"] != data["uid"]:
        raise CannotImport(
            f"pool {observed.name} of KubeVirt was deleted and created again during the import: "
            f"its UID was {data['uid']} and is {source['metadata']['uid']}"
        )
    if source is not None and _settings(source["spec"]) != _settings(data["spec"]):
        if target is None and not _is_halted(source):
            return [Write("delete", CONTROLLER_REVISIONS, record_name(observed.name), "the pool has changed since")]
        raise CannotImport(
            f"the spec of pool {observed.name} of KubeVirt has changed during the import; take it back with --back"
        )
    if source is not None and (waits := _pause(source)) is not None:
        return waits
    if target is None:
        if source is None:
            raise CannotImport(f"{observed.both_gone}; {record_name(observed.name)} has the spec")
        return [_create_pool(observed, data)]
    return _hand_over(observed, target, data)


def _settings(spec: Json) -> Json:
    """The spec without what the import changes itself."""
    return {key: value for key, value in spec.items() if key not in ("paused", "autohealing")}


def _is_halted(source: Json) -> bool:
    return bool(source["spec"].get("paused")) and source["spec"].get("autohealing") is None


def _pause(source: Json) -> list[Write] | Wait | None:
    metadata = source["metadata"]
    if metadata.get("deletionTimestamp"):
        return None
    if not _is_halted(source):
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}}
        body["spec"] = {"paused": True, "autohealing": None}
        why = "pause KubeVirt's controller"
        return [Write("patch", kubevirt_resource(source), metadata["name"], why, body, metadata["uid"])]
    return not_paused(source)


def new_pool(observed: Observed, data: Json) -> Json:
    """The pool of Poolhouse, paused."""
    converted = convert({"metadata": {}, "spec": data["spec"]}, data["drops"])
    metadata = pool_metadata(data)
    annotations = {**metadata.get("annotations", {}), meta.FIRST_ORDINAL: "0", meta.IMPORTING: data["uid"]}
    return {
        "apiVersion": POOLS.api_version,
        "kind": POOLS.kind,
        "metadata": {
            **metadata,
            "annotations": annotations,
            "namespace": observed.namespace,
            "name": observed.name,
        },
        "spec": {**converted.spec, "paused": True},
    }


def _create_pool(observed: Observed, data: Json) -> Write:
    return Write("create", POOLS, observed.name, "create the new pool, paused", new_pool(observed, data))


def _hand_over(observed: Observed, target: Json, data: Json) -> list[Write] | Wait:
    annotations = target["metadata"].get("annotations") or {}
    if annotations.get(meta.IMPORTING) != data["uid"]:
        if observed.source is None:
            return []
        raise CannotImport(f"the pool {observed.name} of Poolhouse was not created by this import")
    revisions, writes = store_revisions(observed, target, data)
    if writes:
        return writes
    # Also without the pool of KubeVirt, which may be gone with its CRD: Kubernetes deletes the VMs of such an owner.
    if moved := list(adopt(observed, target, observed.owned(data["uid"]), revisions)):
        return moved
    if observed.source is not None:
        if disks := list(retain(observed, target)):
            return disks
        return delete_source(observed.source)
    body = {
        "metadata": {"annotations": {meta.IMPORTING: None}},
        "spec": {"paused": bool(data["spec"].get("paused"))},
    }
    why = "the import is complete" if data["spec"].get("paused") else "resume the new pool"
    return [Write("patch", POOLS, observed.name, why, body, target["metadata"]["uid"])]
