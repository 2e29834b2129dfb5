"""Builds the VM of an ordinal and the ControllerRevision from the pool's template."""

import copy
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from controllers.pool.disk_templates import carried_over
from controllers.pool.pools import Pool
from controllers.pool.revision_content import content, postfixed_paths
from controllers.pool.revisions import Revision
from controllers.shared.data_sources import pinned
from controllers.shared.names import name_of
from controllers.shared.vm import disk_names, references
from controllers.shared.vmi import DISKS
from poolhouse.api.apimachinery.merge_patch import apply_patch
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import POOL, NameGeneration


def build_vm(
    pool: Pool,
    ordinal: int,
    revision: Revision,
    retained_disks: Iterable[tuple[str, str]] = (),
    disks: Mapping[str, str] = MappingProxyType({}),
    machine_type: str = "",
) -> Json:
    """The VirtualMachine that the pool creates for this ordinal (designs/1, VM Naming and the sections after it).

    `retained_disks` are the names and hashes of entries of dataVolumeTemplates whose disks exist already. `disks` are
    the names of disks by entry that differ from the entry's name with the VM's postfix. `machine_type` stands for the
    alias in the template."""
    template = copy.deepcopy(pool.spec.template)
    metadata = template.get("metadata") or {}
    spec = pinned(template.get("spec") or {}, revision.sources)
    if machine_type:
        spec = apply_patch(spec, {"template": {"spec": {"domain": {"machine": {"type": machine_type}}}}})
    labels = {meta.POOL: pool.name, meta.REVISION: revision.label}
    # With these labels, VMIs and launcher pods match the pool's scale selector, and a VMI has its revision.
    inner = spec.setdefault("template", {})
    served = {meta.IN_SERVICE: "true"} if pool.spec.lifecycle_hooks else {}
    inner["metadata"] = _labelled(inner.get("metadata") or {}, labels | served)
    _postfix(spec, f"-{ordinal}", pool.spec.name_generation, disks)
    metadata = _labelled(metadata, labels)
    if hashes := carried_over(dict(retained_disks), revision.disks):
        metadata["annotations"] = {**(metadata.get("annotations") or {}), meta.DISK_TEMPLATES: hashes}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            **{key: value for key, value in metadata.items() if key in ("labels", "annotations")},
            "namespace": pool.namespace,
            "name": name_of(pool.name, ordinal),
            "ownerReferences": [owner_reference(pool)],
        },
        "spec": spec,
    }


def vmi_metadata(pool: Pool, ordinal: int, revision: Revision) -> Json:
    """The labels and annotations with which the VMI of this ordinal starts, without poolhouse.dev/in-service."""
    found: Json = build_vm(pool, ordinal, revision)["spec"]["template"]["metadata"]
    found["labels"].pop(meta.IN_SERVICE, None)
    return found


def build_revision(pool: Pool, revision: Revision) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "namespace": pool.namespace,
            "name": revision.name,
            "labels": {meta.POOL: pool.name},
            "ownerReferences": [owner_reference(pool)],
        },
        "revision": revision.number,
        "data": content(pool.spec, revision.sources),
    }


def owner_reference(pool: Pool) -> Json:
    return controller_reference(POOL.api_version, POOL.kind, pool.name, pool.uid)


def _labelled(metadata: Json, labels: dict[str, str]) -> Json:
    return {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}


def _postfix(spec: Json, postfix: str, names: NameGeneration, disks: Mapping[str, str]) -> None:
    named = {entry: disks.get(entry, entry + postfix) for entry in disk_names({"spec": spec})}
    for each in spec.get("dataVolumeTemplates") or ():
        each["metadata"]["name"] = named[each["metadata"]["name"]]
    for volume in (spec["template"].get("spec") or {}).get("volumes") or ():
        for holder, key in references(volume, DISKS):
            holder[key] = named.get(holder[key], holder[key])
        for holder, key in references(volume, postfixed_paths(names)):
            holder[key] += postfix
