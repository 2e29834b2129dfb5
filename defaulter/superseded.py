"""Lets defaults give way to the author's edits of a stored VM.

An author edits a VM whose unset fields Poolhouse has filled. The result should be the same as if the author had edited
a VM without defaults. Therefore a default is superseded if it would be another one for the author's part of the new
document than for the author's part of the stored document: video without a graphics device, CPUs beside an instance
type, memory that follows a request, the address of a disk on another bus. A superseded default is removed, and
defaulting fills the field again where it applies. All other defaults stay, even if this version or this cluster would
choose others today. A value that the author wrote is never removed.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import filterfalse
from typing import Any

from defaulter.allowed_changes import defaulted_fields
from defaulter.codecs import normalize_address
from defaulter.field_record import (
    DEFAULTED_FIELDS,
    Evidence,
    Fields,
    flatten,
    is_same,
    read_record,
    show_path,
    with_record,
    without,
)
from defaulter.json_paths import DocumentEditor, Path
from defaulter.kubevirt_defaults import ClusterConfig, set_kubevirt_defaults
from defaulter.machine_types import is_version_of
from defaulter.stored_values import fill_stored_values
from defaulter.structure import readable
from defaulter.undefaulted import CLUSTER_INDEPENDENT, fields_left_to_libvirt
from defaulter.vm_paths import VMLocation, locate, opted_out
from defaulter.vmi_spec import addresses, architecture
from poolhouse.api.apimachinery.problem import format_path
from poolhouse.api.apimachinery.unstructured import Json, at, entries, replaced

ANY_CLUSTER = ClusterConfig()
"""Which defaults depend on which fields is the same for every configuration."""
ADDRESSES = ("pciAddress", "macAddress")
IDENTITY = (*ADDRESSES, "uuid", "serial", "architecture", "machine.type")
"""Ends of the paths whose value a VM keeps even if the author wrote it once and removes it: a guest depends on it."""
DISKS, NICS, NETWORKS = "domain.devices.disks", "domain.devices.interfaces", "networks"
TYPES = ("bridge", "masquerade", "sriov", "binding", "passtBinding", "pod", "multus")
ADDED_TYPES = (".bridge", ".masquerade", ".pod")
TOPOLOGY = ("domain.cpu.cores", "domain.cpu.sockets", "domain.cpu.threads")
MACHINE_TYPE = "domain.machine.type"
MAX_WARNINGS = 10


@dataclass(frozen=True)
class Edit:
    """An update of a VM, or its creation from a copied document, after superseded defaults are removed."""

    document: Json
    old: Json | None
    """The stored document with the values that the new document may take from it."""
    defaults: Fields = field(default_factory=dict)
    """Fields that Poolhouse filled earlier and that still apply. The new document may leave them unset."""
    superseded: Fields = field(default_factory=dict)
    """Defaults of the stored document that do not apply any more."""
    newly_due: frozenset[str] = frozenset()
    """Paths that defaulting fills now, but would not fill in the stored document."""
    repeated: Fields = field(default_factory=dict)
    """Fields that Poolhouse filled in an earlier call for the same request, because an API server calls a webhook again
    if another webhook has changed the object; and objects of superseded defaults, which stay if the author's values are
    in them."""


def follow_author(document: Json, old: Json | None) -> Edit:
    """The edit of a VirtualMachine without superseded defaults. Documents of other kinds stay unchanged."""
    stored = document if old is None else old
    location, before = _location(document), _location(stored)
    if location is None or opted_out(document):
        return Edit(document, old)
    if before is None:
        return Edit(document, old, repeated=_filled_in_earlier_call(document, location, old, {}))
    record = read_record(stored, before)
    if record is None and old is None:
        return Edit(document, old)
    spec, old_spec = at(document, *location.spec), at(stored, *before.spec)
    known = _inferred(stored, before, old_spec) if record is None else record
    now = flatten(spec)
    repeated = _filled_in_earlier_call(document, location, old, known)
    written = _written(known, now, Evidence(document)) - repeated.keys()
    kept = {path: value for path, value in known.items() if path not in written}
    own = {path: repeated.get(path, value) for path, value in kept.items() if path in now}
    orphans = _orphans(spec, own)
    author, old_author = _authors_part(spec, own, orphans), _authors_part(old_spec, known, set())
    removed: Fields = {}
    if record is not None:
        removed = _removed_by_author(old_spec, known, now)
    else:  # values without a known author stay, as if the author had written them again
        editor = DocumentEditor(_with_spec(document, location, author))
        fill_stored_values(editor, location, _with_spec(stored, before, old_author), ANY_CLUSTER)
        author = editor.get(location.spec)
    bases, old_bases = _bases(document, location, author), _bases(stored, before, old_author)
    outdated = known.keys() - bases.keys() if old is None else _outdated(document, old, known, bases, old_bases)
    gone = orphans | _taken(own, author) | set(filterfalse(_is_added, outdated))
    superseded = {path: value for path, value in known.items() if path in gone}
    return Edit(
        _with_spec(document, location, _without_superseded(spec, own, superseded)),
        None if old is None else _with_spec(old, before, without(old_spec, superseded | removed)),
        {path: own.get(path, value) for path, value in kept.items() if path not in superseded},
        superseded,
        frozenset(bases.keys() - old_bases.keys()),
        repeated | {path: superseded[path] for path in kept if superseded.get(path) in ({}, [])},
    )


def _outdated(document: Json, old: Json, known: Fields, bases: Fields, old_bases: Fields) -> set[str]:
    """The paths of defaults that depend on fields that the author has changed."""
    found = {path for path in known if not is_same(bases.get(path), old_bases.get(path))}
    return found if _preference(document) == _preference(old) else found | (known.keys() - bases.keys())


def _without_superseded(spec: Json, own: Fields, superseded: Fields) -> Json:
    """The spec without superseded defaults, and without the objects of defaults that are empty then."""
    parents = {parent for path in superseded for parent in _parents(path) if not _is_added(parent)}
    return without(spec, {path: value for path, value in own.items() if path in superseded or path in parents})


def _filled_in_earlier_call(document: Json, location: VMLocation, old: Json | None, known: Fields) -> Fields:
    """Defaults in the record of the new document that are not in the stored record, or have another value there. An
    entry of both records is one if another client has changed the field of the stored document since."""
    if old is None:
        return {}
    given, stored = (at(each, "metadata", "annotations", DEFAULTED_FIELDS) for each in (document, old))
    found, evidence = read_record(document, location) or {}, Evidence(document)

    def is_authors(path: str) -> bool:
        # The record may be a copy of the stored one, in an edit that sets the field to the old default.
        is_edited = given == stored and "[" not in path and bool(evidence.managers(path))
        return evidence.wrote(path) or is_edited

    return {
        path: value for path, value in found.items() if not is_same(known.get(path), value) and not is_authors(path)
    }


def _parents(path: str) -> Iterator[str]:
    """The paths of the objects that contain the field."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _preference(document: Json) -> tuple[Any, ...]:
    """The name of the VM's preference, which brings the defaults that KubeVirt's rules do not give."""
    matcher = at(document, "spec", "preference")
    return tuple(at(matcher, part) for part in ("name", "kind", "inferFromVolume"))


def _written(known: Fields, now: Fields, evidence: Evidence) -> set[str]:
    """The paths of earlier defaults that the author has set, to another value or to the same. The version of an alias
    is Poolhouse's, also if a declarative client sets the alias each time."""

    def is_written(path: str, value: Any) -> bool:
        is_alias = path == MACHINE_TYPE and is_version_of(str(now[path]), str(value))
        return not is_alias and (evidence.wrote(path) or not is_same(now[path], value))

    return {path for path, value in known.items() if path in now and is_written(path, value)}


def _taken(own: Fields, author: Json) -> set[str]:
    """The paths of addresses that the author gives to another device."""
    taken = {normalize_address(value) for _, value in addresses(author)}
    return {path for path, value in own.items() if path.endswith(ADDRESSES) and normalize_address(value) in taken}


def _removed_by_author(stored: Json, known: Fields, now: Fields) -> Fields:
    """Values that the author wrote earlier and that the new document leaves unset, without those that a guest knows."""
    values = flatten(stored).items()
    return {p: value for p, value in values if p not in known and p not in now and not p.endswith(IDENTITY)}


def _location(document: Json) -> VMLocation | None:
    """The location of a VirtualMachine's VMI spec; None for other kinds or without a spec."""
    location = locate(document) if document.get("kind") == "VirtualMachine" else None
    return location if location is not None and isinstance(at(document, *location.spec), dict) else None


def _with_spec(document: Json, location: VMLocation, spec: Json) -> Json:
    return document if spec == at(document, *location.spec) else replaced(document, spec, *location.spec)


def _inferred(stored: Json, location: VMLocation, spec: Json) -> Fields:
    """The defaults of a VM without a record: fields that defaulting fills and that no client has set. The address of a
    PCI device counts as a default unless a client has applied it, because it is never valid after a contradicting
    edit."""
    evidence, values, fillable = Evidence(stored), flatten(spec), defaulted_fields(stored)
    unowned = {
        path: value
        for path, value in values.items()
        if (evidence.left_unset(path) and (path in fillable or value in ({}, [])))
        or (path.endswith(".pciAddress") and not evidence.wrote(path))
    }
    defaults = _bases(stored, location, _authors_part(spec, unowned, set()))
    return {path: value for path, value in unowned.items() if path in defaults}


def _authors_part(spec: Json, own: Fields, orphans: set[str]) -> Json:
    """The spec without defaults. Devices and networks that Poolhouse added stay, without their fields, unless they are
    orphans: defaulting would add them at the end of the list."""
    kept = {path for path in own if path not in orphans and _is_added(path)}
    return without(spec, {path: value for path, value in own.items() if path not in kept})


def _is_added(path: str) -> bool:
    """Whether the path is that of a device or network, of the object that gives it its type, or of its list."""
    is_type = path.startswith((NICS, NETWORKS)) and path.endswith(ADDED_TYPES)
    return is_type or path.endswith("]") or path in (DISKS, NICS, NETWORKS)


def _orphans(spec: Json, own: Fields) -> set[str]:
    """Devices and networks that Poolhouse added and whose reason is gone: a disk without its volume, a network without
    its interface, an interface that the author types otherwise."""
    volumes, networks = _names(spec, "volumes"), _names(spec, "networks")
    disks, nics = _names(spec, "domain", "devices", "disks"), _names(spec, "domain", "devices", "interfaces")
    detached = at(spec, "domain", "devices", "autoattachPodInterface") is False
    found = {f"{DISKS}[{name}]" for name in disks - volumes}
    pairs = nics | networks if detached else nics ^ networks
    for name in pairs:
        found |= {f"{NICS}[{name}]", f"{NETWORKS}[{name}]"}
    for prefix, items in ((NICS, at(spec, "domain", "devices", "interfaces")), (NETWORKS, spec.get("networks"))):
        for item in items if isinstance(items, list) else ():
            path = f"{prefix}[{at(item, 'name')}]"
            types = [key for key in item if key in TYPES] if isinstance(item, dict) else []
            found |= {f"{path}.{key}" for key in types if path in found or len(types) > 1}
    lists = {path.partition("[")[0] for path in found if path in own}
    return {path for path in (*found, *lists) if path in own}


def _names(spec: Json, *path: str) -> set[str]:
    return {name for _, item in entries(spec, *path) if isinstance(name := item.get("name"), str)}


def _bases(document: Json, location: VMLocation, author: Json) -> Fields:
    """What each default depends on, by path: the default itself, or the fields that decide whether libvirt's choice
    for the device stays valid."""
    editor = DocumentEditor(_with_spec(document, location, _with_all_links(author)))
    before = flatten(editor.get(location.spec))
    set_kubevirt_defaults(editor, location, ANY_CLUSTER)
    spec = editor.get(location.spec)
    found = {path: value for path, value in flatten(spec).items() if path not in before}
    below = len(location.spec)
    for path in fields_left_to_libvirt(editor.document, location, ANY_CLUSTER.macs):
        found[show_path(spec, path[below:])] = _decides(spec, path[below:])
    # Defaulting fills sockets only if cores and threads are unset too, so the three stay or go together.
    sockets = found.get("domain.cpu.sockets")
    found |= {path: (value, sockets) for path, value in found.items() if path in TOPOLOGY}
    # KubeVirt fills these two before the webhook is called, also those of a VM with a preference.
    return found | {"architecture": True, MACHINE_TYPE: architecture(spec)}


def _with_all_links(spec: Json) -> Json:
    """The spec with every interface plugged in: an interface that is being removed keeps its fields until then."""
    editor = DocumentEditor(spec)
    interfaces = ("domain", "devices", "interfaces")
    for index, interface in entries(spec, *interfaces):
        if interface.get("state") == "absent":
            editor.replace((*interfaces, index, "state"), None)
    return editor.document


def _decides(spec: Json, path: Path) -> Any:
    """The value of the field that decides about a choice of libvirt: a NIC has another address as another model."""
    if path[-1] == "pciAddress" and "interfaces" in path:
        return at(spec, *path[:-1], "model")
    return architecture(spec) if path[-1] == "model" else True


def record_defaults(edit: Edit, result: Json) -> Json:
    """The result of defaulting with the record of its defaults: earlier ones that still apply, and values that neither
    the author's document nor the stored one has."""
    location = _location(result)
    if location is None or opted_out(result):
        return result
    given, stored = flatten(at(edit.document, *location.spec)), flatten(at(edit.old, *location.spec))
    filled = {**edit.repeated, **edit.defaults}
    fields = {
        path: value
        for path, value in flatten(at(result, *location.spec)).items()
        if not (is_same(given.get(path), value) or (stored and is_same(stored.get(path), value)))
        or (path in filled and is_same(filled[path], value))
    }
    return with_record(result, fields)


def preserve_stored_values(document: Json, old: Json) -> Json:
    """The document without superseded defaults, with the values of the stored document (`old`) for unset fields.
    Defaulting an update begins with this step, which needs no service."""
    location = locate(document)
    if location is None or opted_out(document) or not isinstance(at(document, *location.spec), dict):
        return document
    edit = follow_author(document, readable(old))
    editor = DocumentEditor(edit.document)
    if edit.old is not None:
        fill_stored_values(editor, location, edit.old, CLUSTER_INDEPENDENT)
    return record_defaults(edit, editor.document)


def warnings(edit: Edit, result: Json) -> Iterator[str]:
    """A warning for each superseded default of a device that still exists, with its old and its new value."""
    location = _location(result)
    if location is None or not edit.superseded:
        return
    now, author = flatten(at(result, *location.spec)), flatten(at(edit.document, *location.spec))
    changes = [
        (path, value, now.get(path))
        for path, value in edit.superseded.items()
        if path not in author and not is_same(now.get(path), value) and _is_worth_a_warning(path, value, now)
    ]
    for path, value, new in changes[:MAX_WARNINGS]:
        field = format_path((*location.spec, path))
        old = "which Poolhouse had added" if path.endswith("]") else f"which Poolhouse had set to {json.dumps(value)}"
        outcome = "was removed" if new is None else f"is now {json.dumps(new)}"
        yield f"{field}, {old}, {outcome}: it depends on fields that you changed"
    if len(changes) > MAX_WARNINGS:
        yield f"{len(changes) - MAX_WARNINGS} more defaults changed, because they depend on fields that you changed"


def _is_worth_a_warning(path: str, value: Any, now: Fields) -> bool:
    """Whether the path is a value of a device that still exists, or a device that Poolhouse had added."""
    if path.endswith("]"):
        return True
    return value not in ({}, []) and ("[" not in path or path[: path.rindex("]") + 1] in now)
