"""Plans the import of a pool of KubeVirt. The plan is pure: it returns the next writes for what was observed.

The command observes, carries out the next writes, and observes again until no write is left. After an interruption at
any write, the same command therefore continues. The order of the phases makes it safe:

1. A ControllerRevision (the record) keeps the old pool's spec and the templates of its revisions.
2. KubeVirt's pool is paused, and its autohealing is removed: KubeVirt heals paused pools too.
3. The new pool is created, paused, with a ControllerRevision for each template that a VM or VMI has.
4. Each VM changes its controller from one pool to the other in a single write, so that it always has exactly one.
5. KubeVirt's pool owns no VM any more, and is deleted.
6. The new pool is resumed, unless the old one was paused.

Until phase 5, `take_back` plans the way back.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from controllers.pool import template
from controllers.pool.import_steps import (
    CannotImport,
    Observed,
    Wait,
    Write,
    change_controller,
    identity,
    kubevirt_resource,
    record_name,
    vmis,
    with_controller,
)
from controllers.pool.kubevirt_pools import FINALIZER, REVISION_LABEL, Conversion, convert, pool_metadata, revision_spec
from controllers.pool.pools import POOLS, Pool, parse_pool
from controllers.pool.revision_content import content
from controllers.pool.revisions import Revision, current_revision, parse_revision
from controllers.shared.names import name_of, ordinal_of
from controllers.shared.vm import disk_names
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import POOL
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, PVCS, VMIS


def check(observed: Observed, drops: tuple[str, ...]) -> Conversion:
    """What an import would change. Raises `CannotImport` with all problems."""
    source = observed.source
    if source is None:
        raise CannotImport(f"there is no pool {observed.name} of KubeVirt in namespace {observed.namespace}")
    found = convert(source, drops)
    problems = [f"{each}; drop it with --drop {each.path.removeprefix('spec.')}" for each in found.refusals]
    problems += [f"--drop {each}: no field of this name stops the import" for each in found.unused_drops()]
    if observed.target is not None:
        problems.append(f"Poolhouse has a pool {observed.name} in namespace {observed.namespace} already")
    if source["metadata"].get("deletionTimestamp"):
        problems.append(f"the pool {observed.name} of KubeVirt is being deleted")
    problems += _unknown_members(observed, source)
    if problems:
        raise CannotImport(*problems)
    return found


def _unknown_members(observed: Observed, source: Json) -> Iterator[str]:
    """VMs that cannot become members without a restart."""
    known = {each["metadata"]["name"] for each in observed.revisions}
    for vm in observed.owned(source["metadata"]["uid"]):
        name = vm["metadata"]["name"]
        if ordinal_of(observed.name, name) is None:
            yield f"VM {name}: the name does not match {observed.name}-NUMBER"
        if vm["metadata"].get("deletionTimestamp"):
            yield f"VM {name}: it is being deleted; wait until it is gone"
        for kind, document in (("VM", vm), ("VMI", observed.vmis_by_name.get(name))):
            if document is not None and (revision := _revision_of(document)) not in known:
                missing = f"the revision {revision} does not exist" if revision else f"it has no label {REVISION_LABEL}"
                yield f"{kind} {name}: {missing}, so its template is unknown and the new pool would restart it"


def _revision_of(document: Json) -> str:
    return str(at(document, "metadata", "labels", REVISION_LABEL) or "")


def plan(observed: Observed, drops: tuple[str, ...] = ()) -> list[Write] | Wait:
    """The next writes, or none if the import is complete. Raises `CannotImport`."""
    record, source, target = observed.record, observed.source, observed.target
    if record is None:
        check(observed, drops)
        return [_create_record(observed, drops)]
    data = record["data"]
    if drops and sorted(drops) != data["drops"]:
        raise CannotImport(f"the import has begun with --drop {' --drop '.join(data['drops']) or 'nothing'}")
    if source is not None and source["metadata"]["uid"] != data["uid"]:
        raise CannotImport(f"the pool {observed.name} of KubeVirt is not the one whose import has begun: {data['uid']}")
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
            raise CannotImport(f"both pools {observed.name} are gone; {record_name(observed.name)} has the spec")
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
        return [
            Write(
                "patch",
                kubevirt_resource(source),
                metadata["name"],
                "pause KubeVirt's controller",
                body,
                metadata["uid"],
            )
        ]
    conditions = at(source, "status", "conditions") or ()
    if not any(each.get("type") == "ReplicaPaused" and each.get("status") == "True" for each in conditions):
        return Wait("KubeVirt's controller has not confirmed the pause")
    return None


def _create_record(observed: Observed, drops: tuple[str, ...]) -> Write:
    assert observed.source is not None
    source, metadata = observed.source, observed.source["metadata"]
    used = {_revision_of(each) for each in (*observed.owned(metadata["uid"]), *vmis(observed, metadata["uid"]))}
    kept = {part: metadata[part] for part in ("annotations", "labels") if metadata.get(part)}
    data = {
        "drops": sorted(drops),
        "metadata": kept,
        "revisions": {
            each["metadata"]["name"]: each["data"]
            for each in sorted(observed.revisions, key=lambda each: each["metadata"]["name"])
            if each["metadata"]["name"] in used
        },
        "spec": source["spec"],
        "uid": metadata["uid"],
    }
    name = record_name(observed.name)
    body = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"namespace": observed.namespace, "name": name},
        "revision": 0,
        "data": data,
    }
    return Write("create", CONTROLLER_REVISIONS, name, "keep the spec of KubeVirt's pool", body)


def new_pool(observed: Observed, data: Json) -> Json:
    """The pool of Poolhouse, paused."""
    converted = convert({"metadata": {}, "spec": data["spec"]}, data["drops"])
    metadata = pool_metadata(data)
    annotations = {**metadata.get("annotations", {}), meta.FIRST_ORDINAL: "0", meta.IMPORTING: data["uid"]}
    return {
        "apiVersion": POOL.api_version,
        "kind": POOL.kind,
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
    revisions, writes = _revisions(observed, target, data)
    if writes:
        return writes
    if observed.source is not None:
        members = observed.owned(data["uid"])
        if moved := [*_label_vmis(observed, members, revisions), *_adopt(target, members, revisions)]:
            return moved
        if retained := list(_retained(observed, target)):
            return retained
        metadata = observed.source["metadata"]
        if metadata.get("deletionTimestamp"):
            return Wait("KubeVirt's pool is being deleted")
        why = "delete KubeVirt's pool, which owns no VM"
        return [Write("delete", kubevirt_resource(observed.source), observed.name, why, {}, metadata["uid"], "Orphan")]
    body = {
        "metadata": {"annotations": {meta.IMPORTING: None}},
        "spec": {"paused": bool(data["spec"].get("paused"))},
    }
    why = "the import is complete" if data["spec"].get("paused") else "resume the new pool"
    return [Write("patch", POOLS, observed.name, why, body, target["metadata"]["uid"])]


def _revisions(observed: Observed, target: Json, data: Json) -> tuple[dict[str, str], list[Write]]:
    """The labels of the new revisions by the names of KubeVirt's, and the revisions that do not exist yet."""
    pool = parse_pool(target)
    if not isinstance(pool, Pool):
        raise CannotImport(f"the new pool is invalid: {pool.problem}")
    known = [parse_revision(each) for each in observed.revisions if each["metadata"]["name"] != record_name(pool.name)]
    labels, writes = {}, []
    for name, stored in sorted(data["revisions"].items(), key=lambda each: _number(each[0])):
        parsed = parse_pool({**target, "spec": revision_spec(stored, data["drops"])})
        if not isinstance(parsed, Pool):
            raise CannotImport(f"the template of revision {name} is invalid: {parsed.problem}")
        spec = pool.spec.model_copy(
            update={"template": parsed.spec.template, "name_generation": parsed.spec.name_generation}
        )
        revision, saved = current_revision(pool.name, pool.uid, content(spec), known, namespace=pool.namespace)
        labels[name] = revision.label
        if not saved:
            known.append(revision)
            writes.append(_create_revision(replace(pool, spec=spec), revision, name))
    record = observed.record
    if record is not None and not record["metadata"].get("ownerReferences"):
        owner = controller_reference(POOL.api_version, POOL.kind, pool.name, pool.uid)
        body = {"metadata": {"ownerReferences": [owner | {"controller": False, "blockOwnerDeletion": False}]}}
        writes.append(
            Write("patch", CONTROLLER_REVISIONS, record_name(pool.name), "it is deleted with the new pool", body)
        )
    return labels, writes


def _number(revision: str) -> tuple[int, str]:
    last = revision.rpartition("-")[2]
    return int(last) if last.isdigit() else 0, revision


def _create_revision(pool: Pool, revision: Revision, name: str) -> Write:
    body = template.build_revision(pool, revision)
    return Write("create", CONTROLLER_REVISIONS, revision.name, f"the template of {name}", body)


def _label_vmis(observed: Observed, members: list[Json], revisions: dict[str, str]) -> Iterator[Write]:
    """The VMIs first: the revision of a VMI says from which template it was started."""
    for vm in members:
        name = vm["metadata"]["name"]
        vmi = observed.vmis_by_name.get(name)
        label = revisions.get(_revision_of(vmi)) if vmi is not None else None
        if vmi is None or label is None or at(vmi, "metadata", "labels", meta.REVISION) == label:
            continue
        labels = {meta.POOL: observed.name, meta.REVISION: label}
        body = {"metadata": {"uid": vmi["metadata"]["uid"], "labels": labels}}
        yield Write("patch", VMIS, name, f"revision {label}", body)


def _adopt(target: Json, members: list[Json], revisions: dict[str, str]) -> Iterator[Write]:
    """Gives each VM its new controller in one write. The labels of the VM's template are those of the next VMI."""
    pool = target["metadata"]
    for vm in members:
        metadata = vm["metadata"]
        owner = controller_reference(POOL.api_version, POOL.kind, pool["name"], pool["uid"])
        label = revisions.get(_revision_of(vm))
        started = revisions.get(str(at(vm, "spec", "template", "metadata", "labels", REVISION_LABEL) or ""), label)
        changes = {
            "ownerReferences": with_controller(vm, owner),
            "finalizers": [each for each in metadata.get("finalizers") or () if each != FINALIZER],
            "labels": {meta.POOL: pool["name"], meta.REVISION: label},
        }
        labels = {meta.POOL: pool["name"], meta.REVISION: started}
        yield change_controller(metadata, changes, labels, "change its controller to the new pool")


def _retained(observed: Observed, target: Json) -> Iterator[Write]:
    """Disks without VM that KubeVirt has kept: it gives them to the next VM of the number, and so does the new pool."""
    uid = target["metadata"]["uid"]
    names, vms = disk_names(target["spec"]["template"]), {each["metadata"]["name"] for each in observed.vms}
    for claim in observed.claims:
        metadata = claim["metadata"]
        numbers = (ordinal_of(entry, metadata["name"]) for entry in names)
        number = next((each for each in numbers if each is not None), None)
        if number is None or (vm := name_of(observed.name, number)) in vms or _has_other_owner(claim):
            continue
        if metadata.get("deletionTimestamp") or at(metadata, "labels", meta.KEPT_BY):
            continue
        body = {"metadata": {**identity(metadata), "labels": {meta.KEPT_BY: uid, meta.KEPT_FOR: vm}}}
        yield Write("patch", PVCS, metadata["name"], f"retain it for {vm}", body)


def _has_other_owner(claim: Json) -> bool:
    """A DataVolume of the claim's name is its maker, and not a stranger."""
    metadata = claim["metadata"]
    references: list[Any] = metadata.get("ownerReferences") or []
    return any(each.get("kind") != "DataVolume" or each.get("name") != metadata["name"] for each in references)
