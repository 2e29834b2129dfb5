"""Plans that an imported pool stays one of Poolhouse after a way back that has not ended. The plan is pure."""

from collections.abc import Iterator

from controllers.pool.import_members import adopt, label_vmis, retain_disk
from controllers.pool.import_steps import (
    CannotImport,
    Observed,
    Wait,
    Write,
    delete_source,
    identity,
    return_record_name,
)
from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS


def keep_pool(observed: Observed) -> list[Write] | Wait:
    """The next writes. Raises `CannotImport` if our pool is deleted."""
    kept, source, target = observed.return_record, observed.source, observed.target
    if target is None or (kept is not None and target["metadata"]["uid"] != kept["data"]["uid"]):
        raise CannotImport(f"the way back of pool {observed.name} to KubeVirt can only be completed, with --back")
    metadata = target["metadata"]
    if kept is None:
        former = at(metadata, "annotations", meta.RETURNING) == "true"
        changes = {**identity(metadata), "annotations": {meta.RETURNING: None}}
        body = {"metadata": changes, "spec": {"paused": former}}
        return [Write("patch", POOLS, observed.name, "the pool stays" if former else "resume the pool", body)]
    data = kept["data"]
    if source is not None and at(source, "metadata", "annotations", meta.RETURNING) == metadata["uid"]:
        return _take_over(observed, target, source, data)
    names = {each["name"] for each in data["revisions"].values()}
    left = [each["metadata"] for each in observed.revisions if each["metadata"]["name"] in names]
    why = "the pool of KubeVirt is deleted"
    return [
        *(Write("delete", CONTROLLER_REVISIONS, each["name"], why, {}, each["uid"]) for each in left),
        Write("delete", CONTROLLER_REVISIONS, return_record_name(observed.name), why),
    ]


def _take_over(observed: Observed, target: Json, source: Json, data: Json) -> list[Write] | Wait:
    ours, theirs = target["metadata"]["uid"], source["metadata"]["uid"]
    labels = {each["name"]: label for label, each in data["revisions"].items()}
    moved = [
        *label_vmis(observed, observed.owned(ours), labels),
        *adopt(observed, target, observed.owned(theirs), labels),
        *_disks(observed, ours, data),
    ]
    return moved or delete_source(source)


def _disks(observed: Observed, uid: str, data: Json) -> Iterator[Write]:
    for claim in observed.claims:
        metadata = claim["metadata"]
        vm = data["disks"].get(metadata["name"])
        if vm is None or metadata.get("deletionTimestamp") or at(metadata, "labels", meta.KEPT_BY):
            continue
        yield retain_disk(metadata, uid, vm)
