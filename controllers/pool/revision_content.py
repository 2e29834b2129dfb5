"""What determines the VMs of a pool, and the hashes of its parts. Contents that mean the same have the same hashes."""

import hashlib
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from controllers.shared.data_sources import Sources
from controllers.shared.vm import MATCHERS, references
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import NameGeneration, PoolSpec
from poolhouse.api.kubevirt.fields import VM_SPEC
from poolhouse.api.kubevirt.live_devices import LiveDevice, live_devices, without_absent_nics, without_devices
from poolhouse.api.kubevirt.live_updates import without_fields
from poolhouse.api.kubevirt.meaning import DATA_VOLUME_SPEC, POOL_CONTENT, canonical, text_of
from poolhouse.api.kubevirt.own_namespace import without_own_namespace

# Paths in a volume to the name of another object. containerDisk.imagePullSecret is missing, because it is a Secret for
# the node and the same for all VMs.
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


DiskTemplates = tuple[tuple[str, str], ...]
"""Name and hash of each entry of dataVolumeTemplates, sorted."""
DISK_HASH_CHARACTERS = 10


def postfixed_paths(names: NameGeneration) -> tuple[tuple[str, ...], ...]:
    """The paths in a volume to names that get the VM's postfix."""
    return (
        *(SECRETS if names.append_postfix_to_secret_references else ()),
        *(CONFIG_MAPS if names.append_postfix_to_config_map_references else ()),
    )


def content(spec: PoolSpec, sources: Sources = MappingProxyType({})) -> Json:
    """What determines the VMs of a pool: a part of its spec, and what the tracked DataSources point at."""
    postfixes = {name: True for name, asked in spec.name_generation.json().items() if asked}
    found = {"template": spec.template, "nameGeneration": postfixes}
    return {**found, "dataSources": dict(sources)} if sources else found


def of_spec(document: Json) -> Json:
    """The part of a stored revision that stands in a pool's spec."""
    return {key: value for key, value in (document.get("data") or {}).items() if key != "dataSources"}


def read(document: Json) -> dict[str, Any]:
    content = document.get("data") or {}
    return {
        "template": content.get("template") or {},
        "name_generation": NameGeneration.model_validate(content.get("nameGeneration") or {}),
    }


def content_hash(content: Json, namespace: str) -> str:
    """The hash of what determines VMs. Contents that mean the same to KubeVirt in this namespace have equal hashes."""
    return document_hash(canonical(without_namespace(content, namespace), POOL_CONTENT))


def without_namespace(content: Json, namespace: str) -> Json:
    """The content without the namespace where it is that of the pool."""
    found: Json = without_own_namespace(content, POOL_CONTENT, namespace)
    return found


def document_hash(value: Any) -> str:
    """The hash of a document without a type. Null and empty lists count as absent."""
    return hashlib.sha256(text_of(canonical(value)).encode()).hexdigest()


WITHOUT_EFFECT = frozenset({"checkpoints", "finalCheckpoint", "preallocation", "priorityClassName"})
"""Fields of a DataVolume that concern its import, and not its content, size or storage."""


def disk_templates(content: Json) -> DiskTemplates:
    """The hash of each entry. The hash of a tracked DataSource's source follows after a dot."""
    sources = content.get("dataSources") or {}
    found = {}
    for name, spec in _disk_entries(content):
        found[name] = _entry_hash(spec)
        if name in sources:
            found[name] += f".{_short_hash(sources[name])}"
    return tuple(sorted(found.items()))


def disk_spellings(content: Json, local: Json) -> Iterator[tuple[str, str]]:
    """The hashes of entries that earlier releases stored, with the present ones: as the entries are spelt, and by their
    meaning but for the namespace."""
    for (_, spelt), (_, spec) in zip(_disk_entries(content), _disk_entries(local), strict=True):
        yield _short_hash(spelt), _entry_hash(spec)
        yield _entry_hash(spelt), _entry_hash(spec)


def _disk_entries(content: Json) -> Iterator[tuple[str, Json]]:
    """The name and the spec of each entry of dataVolumeTemplates, without the fields that do not concern the disk."""
    for _, each in entries(content, "template", "spec", "dataVolumeTemplates"):
        spec = each.get("spec") or {}
        yield each["metadata"]["name"], {key: value for key, value in spec.items() if key not in WITHOUT_EFFECT}


def _entry_hash(spec: Json) -> str:
    return _short_hash(canonical(spec, DATA_VOLUME_SPEC) or {})


def _short_hash(value: Json) -> str:
    return document_hash(value)[:DISK_HASH_CHARACTERS]


def vmi_parts(content: Json) -> tuple[str, str, tuple[LiveDevice, ...]]:
    """The hash of what the VMI is made of, the same without the live-updatable fields, and the devices among these.
    With an instance type both hashes are equal: its fields are unknown here (`KnownInstancetypes.expanded`)."""
    spec = (content.get("template") or {}).get("spec") or {}
    inner = (spec.get("template") or {}).get("spec") or {}
    paths = postfixed_paths(NameGeneration.model_validate(content.get("nameGeneration") or {}))
    names = [holder[key] for volume in inner.get("volumes") or () for holder, key in references(volume, paths)]
    meaning = canonical(spec, VM_SPEC) or {}
    expanded = _expanded(spec, meaning)
    vmi = without_absent_nics(at(meaning, "template", "spec") or {})
    found = document_hash({"spec": vmi, "postfixed": names, **expanded})
    if spec.get("instancetype"):
        return found, found, ()
    restarted, devices = without_fields(vmi), live_devices(vmi)
    if spec.get("updateVolumesStrategy") == "Migration":
        # KubeVirt plugs no disks of such a VM.
        devices = ()
    else:
        restarted = without_devices(restarted)
    return found, document_hash({"spec": restarted, "postfixed": names, **expanded}), devices


def _expanded(spec: Json, meaning: Json) -> Json:
    """What decides about the VMI beside its template. KubeVirt expands the instance type and the preference when it
    starts the VMI."""
    restarted_at = at(spec, "template", "metadata", "annotations", meta.RESTARTED_AT)
    found = {key: meaning.get(key) for key in MATCHERS}
    return {**found, meta.RESTARTED_AT: restarted_at} if restarted_at else found
