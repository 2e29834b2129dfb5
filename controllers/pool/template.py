"""Builds the VM of an ordinal from the pool's template, and the ControllerRevision of the template."""

from __future__ import annotations

import copy

from apimachinery.owner_references import controller_reference
from apimachinery.unstructured import Json
from controllers.pool.naming import name_of
from controllers.pool.revisions import Revision, content
from controllers.pool.snapshot import Pool
from controllers.shared.disks import DISKS, disk_names, references
from kinds import meta
from kinds.pool import NameGeneration

# Paths in a volume to the name of another object. The guest sees these Secrets; the node uses
# containerDisk.imagePullSecret, which is the same for all VMs.
SECRETS = (
    ("secret", "secretName"),
    ("sysprep", "secret", "name"),
    *(
        (source, reference, "name")
        for source in ("cloudInitNoCloud", "cloudInitConfigDrive")
        for reference in ("secretRef", "networkDataSecretRef", "metaDataSecretRef")
    ),
)
CONFIG_MAPS = (("configMap", "name"), ("sysprep", "configMap", "name"))


def build_vm(pool: Pool, ordinal: int, revision: Revision) -> Json:
    """The VirtualMachine that the pool creates for this ordinal (designs/1, VM Naming and the sections after it)."""
    template = copy.deepcopy(pool.spec.template)
    metadata = template.get("metadata") or {}
    spec = template.get("spec") or {}
    labels = {meta.POOL: pool.name, meta.REVISION: revision.label}
    # VMIs and launcher pods then match the pool's scale selector, and a VMI tells its revision.
    inner = spec.setdefault("template", {})
    inner["metadata"] = _labelled(inner.get("metadata") or {}, labels)
    _postfix(spec, f"-{ordinal}", pool.spec.name_generation)
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            **{key: value for key, value in _labelled(metadata, labels).items() if key in ("labels", "annotations")},
            "namespace": pool.namespace,
            "name": name_of(pool.name, ordinal),
            "ownerReferences": [_owner(pool)],
        },
        "spec": spec,
    }


def build_revision(pool: Pool, revision: Revision) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "namespace": pool.namespace,
            "name": revision.name,
            "labels": {meta.POOL: pool.name},
            "ownerReferences": [_owner(pool)],
        },
        "revision": revision.number,
        "data": content(pool.spec),
    }


def _owner(pool: Pool) -> Json:
    return controller_reference("kubevirt.io/v1", "VirtualMachinePool", pool.name, pool.uid)


def _labelled(metadata: Json, labels: dict[str, str]) -> Json:
    return {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}


def _postfix(spec: Json, postfix: str, names: NameGeneration) -> None:
    disks = disk_names({"spec": spec})
    for each in spec.get("dataVolumeTemplates") or ():
        each["metadata"]["name"] += postfix
    for volume in (spec["template"].get("spec") or {}).get("volumes") or ():
        for holder, key in references(volume, DISKS):
            if holder[key] in disks:
                holder[key] += postfix
        appended = (
            *(SECRETS if names.append_postfix_to_secret_references else ()),
            *(CONFIG_MAPS if names.append_postfix_to_config_map_references else ()),
        )
        for holder, key in references(volume, appended):
            holder[key] += postfix
