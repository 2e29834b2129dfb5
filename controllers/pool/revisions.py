"""Revisions of a pool's template, stored as ControllerRevisions and compared by content.

The controller computes the hashes of both revisions from the stored documents. A release with another hash function
therefore restarts no VMs.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from controllers.pool.revision_content import (
    DiskTemplates,
    content_hash,
    disk_spellings,
    disk_templates,
    vmi_parts,
    without_namespace,
)
from controllers.shared.data_sources import Sources
from controllers.shared.vm import MACHINE_TYPE, matchers_of
from controllers.shared.vmi import text
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.vm_documents import run_strategy
from poolhouse.api.kubevirt import data_source_references
from poolhouse.api.kubevirt.live_devices import LiveDevice
from poolhouse.api.kubevirt.live_updates import LiveFields, read_fields
from poolhouse.runtime.resource import Key


@dataclass(frozen=True, slots=True)
class Revision:
    name: str
    pool_uid: str
    """The UID of the pool. An earlier pool of the same name may have left revisions."""
    number: int
    template_hash: str
    """Hash of the content by its meaning."""
    vmi_hash: str = ""
    """Hash of what the VMI is made of. A change of this hash requires a restart, unless KubeVirt applies it live."""

    disks: DiskTemplates = ()
    run_strategy: str = field(default="", compare=False)
    uid: str = ""
    """The UID of the ControllerRevision; empty if it is not saved yet."""
    sources: Sources = field(default_factory=dict, compare=False)
    """What the tracked DataSources pointed at. This is part of the content."""
    references: Mapping[str, Key] = field(default_factory=dict, compare=False)
    """The DataSources of the template, by name in dataVolumeTemplates. "" is the pool's namespace."""
    disks_by_spelling: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The hashes in `disks` by the hashes of the entries as they are spelt, which stored objects may have."""
    hash_of_name: str = field(default="", compare=False)
    """The hash in the name. It counts the pool's own namespace where the content spells it."""
    machine_type: str = field(default="", compare=False)
    """The machine type in the template, often an alias such as `q35`."""
    pinned_machine_type: str = ""
    """The annotation poolhouse.dev/machine-type."""
    restart_hash: str = field(default="", compare=False)
    """`vmi_hash` without the fields that KubeVirt may change in a running VMI"""
    live: LiveFields = field(default_factory=LiveFields, compare=False)
    """the values of those fields"""
    devices: tuple[LiveDevice, ...] = field(default=(), compare=False)
    """the NICs and disks among them"""
    matchers: str = field(default="", compare=False)
    """the instance type and the preference of the template (`matchers_of`)"""
    expandable: Json = field(default_factory=dict, compare=False, repr=False)
    """the content, if its template has an instance type"""
    given: LiveFields = field(default_factory=LiveFields, compare=False)
    """the live-updatable fields that the instance type gives; a placement only if it adds to the template's"""
    namespace: str = field(default="", compare=False)
    owned: bool = field(default=True, compare=False)
    """False for a revision of the pool that has lost its owner."""

    @property
    def label(self) -> str:
        """The label value of VMs of this revision, which is short because a label value has at most 63 characters."""
        return self.name.rpartition("-")[2]

    def sources_of(self, named: Mapping[str, Key]) -> Sources:
        """The sources without those of entries that name another DataSource now."""
        return {each: source for each, source in self.sources.items() if self.references.get(each) == named.get(each)}


def parse_revision(document: Json) -> Revision:
    owner = controller_of(document) or {}
    content = document.get("data") or {}
    number = int(document.get("revision") or 0)
    name = document["metadata"]["name"]
    found = _revision(name, owner.get("uid", ""), number, content, document["metadata"].get("namespace") or "")
    pinned = text(document, "metadata", "annotations", meta.MACHINE_TYPE)
    return replace(found, uid=document["metadata"].get("uid", ""), pinned_machine_type=pinned)


def current_revision(
    pool_name: str, pool_uid: str, content: Json, known: Iterable[Revision], *, namespace: str = ""
) -> tuple[Revision, bool]:
    """The revision with this content, and whether it is saved already. `namespace` is that of the pool."""
    return saved_or_new(new_revision(pool_name, pool_uid, content, namespace), known)


def new_revision(pool_name: str, pool_uid: str, content: Json, namespace: str) -> Revision:
    """The revision with this content, without a number. It takes 2 ms of processor time, and 36 ms for 300 kB."""
    name = _name(pool_name, pool_uid, content_hash(content, ""))
    return _revision(name, pool_uid, 0, content, namespace)


def saved_or_new(new: Revision, known: Iterable[Revision]) -> tuple[Revision, bool]:
    """The saved revision with the content of the new one, or the new one with its number."""
    own = [each for each in known if each.pool_uid == new.pool_uid]
    # A stored revision may have the content in another spelling.
    if same := [each for each in own if each.template_hash == new.template_hash]:
        return max(same, key=lambda each: each.number), True
    return replace(new, number=max((each.number for each in own), default=0) + 1), False


def without_owner(pool_name: str, pool_uid: str, known: Iterable[Revision]) -> tuple[Revision, ...]:
    """The pool's revisions among those whose owner somebody has removed. The name proves that a revision is the pool's.
    Without it, an update could not remove the fields of the former template."""
    return tuple(
        replace(each, pool_uid=pool_uid, owned=False)
        for each in known
        if not each.pool_uid and each.name == _name(pool_name, pool_uid, each.hash_of_name)
    )


def _name(pool_name: str, pool_uid: str, template_hash: str) -> str:
    """Contains the UID, so that a new pool does not use revisions of an earlier pool of the same name."""
    return f"{pool_name}-{hashlib.sha256(f'{pool_uid} {template_hash}'.encode()).hexdigest()[:10]}"


def _revision(name: str, pool_uid: str, number: int, content: Json, namespace: str) -> Revision:
    local = without_namespace(content, namespace)
    vmi_hash, restart_hash, devices = vmi_parts(local)
    return Revision(
        name,
        pool_uid,
        number,
        content_hash(content, namespace),
        vmi_hash,
        disk_templates(local),
        run_strategy(at(content, "template", "spec") or {}),
        sources=content.get("dataSources") or {},
        references=data_source_references.references(content.get("template"), ""),
        disks_by_spelling=dict(disk_spellings(content, local)),
        hash_of_name=content_hash(content, ""),
        machine_type=text(content, "template", "spec", *MACHINE_TYPE),
        restart_hash=restart_hash,
        live=read_fields(at(local, "template", "spec", "template", "spec")),
        devices=devices,
        matchers=(matchers := matchers_of(at(local, "template", "spec") or {})),
        expandable=local if matchers else {},
        namespace=namespace,
    )
