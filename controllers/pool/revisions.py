"""Revisions of a pool's template, stored as ControllerRevisions and compared by content.

The controller computes the hashes of both revisions from the stored documents. A release with another hash function
therefore restarts no VMs.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from apimachinery.owner_references import controller_of
from apimachinery.unstructured import Json, at
from controllers.shared import data_sources
from controllers.shared.data_sources import Sources
from controllers.shared.vm import references
from kinds import meta
from kinds.pool import NameGeneration, PoolSpec
from runtime.resource import Key

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


@dataclass(frozen=True, slots=True)
class Revision:
    name: str
    pool_uid: str
    """The UID of the pool. An earlier pool of the same name may have left revisions."""
    number: int
    template_hash: str
    vmi_hash: str = ""
    """Hash of what the VMI is made of. A change of this hash requires a restart."""

    orphanable: bool = True
    """Whether the garbage collector can write the stored document. It cannot if the keys of `data` are not sorted, as
    earlier releases of Poolhouse wrote them."""
    disks: DiskTemplates = ()
    uid: str = ""
    """The UID of the ControllerRevision; empty if it is not saved yet."""
    sources: Sources = field(default_factory=dict, compare=False)
    """What the tracked DataSources pointed at. This is part of the content."""
    references: Mapping[str, Key] = field(default_factory=dict, compare=False)
    """The DataSources of the template, by name in dataVolumeTemplates. "" is the pool's namespace."""

    @property
    def label(self) -> str:
        """The label value of VMs of this revision, which is short because a label value has at most 63 characters."""
        return self.name.rpartition("-")[2]


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


def content_hash(value: Json) -> str:
    """The hash of a document. Null and empty lists count as absent, so equivalent documents have equal hashes."""
    text = json.dumps(_normalized(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_revision(document: Json) -> Revision:
    owner = controller_of(document) or {}
    content = document.get("data") or {}
    number = int(document.get("revision") or 0)
    name = document["metadata"]["name"]
    orphanable = list(content) == sorted(content)
    found = _revision(name, owner.get("uid", ""), number, content, orphanable=orphanable)
    return replace(found, uid=document["metadata"].get("uid", ""))


def current_revision(pool_name: str, pool_uid: str, content: Json, known: Iterable[Revision]) -> tuple[Revision, bool]:
    """The revision with this content, and whether it is saved already."""
    wanted = content_hash(content)
    own = [each for each in known if each.pool_uid == pool_uid]
    for each in own:
        if each.template_hash == wanted:
            return each, True
    # The name contains the UID, so that a new pool does not use revisions of an earlier pool of the same name.
    name = f"{pool_name}-{hashlib.sha256(f'{pool_uid} {wanted}'.encode()).hexdigest()[:10]}"
    number = max((each.number for each in own), default=0) + 1
    return _revision(name, pool_uid, number, content), False


def of_spec(document: Json) -> Json:
    """The part of a stored revision that stands in a pool's spec."""
    return {key: value for key, value in (document.get("data") or {}).items() if key != "dataSources"}


def read(document: Json) -> dict[str, Any]:
    content = document.get("data") or {}
    return {
        "template": content.get("template") or {},
        "name_generation": NameGeneration.model_validate(content.get("nameGeneration") or {}),
    }


def _revision(name: str, pool_uid: str, number: int, content: Json, *, orphanable: bool = True) -> Revision:
    hashes = content_hash(content), _vmi_hash(content)
    sources = content.get("dataSources") or {}
    named = data_sources.references(content.get("template"), "")
    disks = _disk_templates(content)
    return Revision(name, pool_uid, number, *hashes, orphanable, disks, sources=sources, references=named)


WITHOUT_EFFECT = frozenset({"checkpoints", "finalCheckpoint", "preallocation", "priorityClassName"})
"""Fields of a DataVolume that concern its import, and not its content, size or storage."""


def _disk_templates(content: Json) -> DiskTemplates:
    """The hash of each entry. The hash of a tracked DataSource's source follows after a dot."""
    entries = ((content.get("template") or {}).get("spec") or {}).get("dataVolumeTemplates") or ()
    sources = content.get("dataSources") or {}
    found = {}
    for each in entries:
        name, spec = each["metadata"]["name"], each.get("spec") or {}
        found[name] = _short_hash({key: value for key, value in spec.items() if key not in WITHOUT_EFFECT})
        if name in sources:
            found[name] += f".{_short_hash(sources[name])}"
    return tuple(sorted(found.items()))


def _short_hash(value: Json) -> str:
    return content_hash(value)[:DISK_HASH_CHARACTERS]


def _vmi_hash(content: Json) -> str:
    spec = (content.get("template") or {}).get("spec") or {}
    inner = (spec.get("template") or {}).get("spec") or {}
    paths = postfixed_paths(NameGeneration.model_validate(content.get("nameGeneration") or {}))
    names = [holder[key] for volume in inner.get("volumes") or () for holder, key in references(volume, paths)]
    # KubeVirt expands the instance type and the preference when it starts the VMI.
    expanded = {key: spec.get(key) for key in ("instancetype", "preference")}
    if restarted := at(spec, "template", "metadata", "annotations", meta.RESTARTED_AT):
        expanded[meta.RESTARTED_AT] = restarted
    return content_hash({"spec": inner, "postfixed": names, **expanded})


def _normalized(value: Any) -> Any:
    match value:
        case dict():
            # An empty object can be a choice (`masquerade: {}`), but an empty list cannot.
            return {key: _normalized(each) for key, each in value.items() if each is not None and each != []}
        case list():
            return [_normalized(each) for each in value]
        case float() if value.is_integer():
            return int(value)
    return value
