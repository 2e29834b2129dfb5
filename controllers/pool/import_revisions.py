"""The revisions of an import: the record of the old pool, and the templates of the new one."""

from dataclasses import replace

from controllers.pool import template
from controllers.pool.import_check import revision_of
from controllers.pool.import_steps import CannotImport, Observed, Write, create_revision, record_name, vmis
from controllers.pool.kubevirt_pools import revision_spec
from controllers.pool.pools import Pool, parse_pool
from controllers.pool.revision_content import content
from controllers.pool.revisions import Revision, current_revision, parse_revision
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.pool import POOL
from poolhouse.runtime.resource import CONTROLLER_REVISIONS


def create_record(observed: Observed, drops: tuple[str, ...]) -> Write:
    assert observed.source is not None
    source, metadata = observed.source, observed.source["metadata"]
    used = {revision_of(each) for each in (*observed.owned(metadata["uid"]), *vmis(observed, metadata["uid"]))}
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
    return create_revision(observed, record_name(observed.name), data, "keep the spec of KubeVirt's pool")


def store_revisions(observed: Observed, target: Json, data: Json) -> tuple[dict[str, str], list[Write]]:
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
