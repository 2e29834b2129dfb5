"""Keeps the values of a stored VM where a new version of its document leaves them unset.

If a user applies a manifest without defaults again, the VM keeps its addresses. A new device never gets the address of
another device. Devices are matched by name. A removed device stays removed, because only unset fields are filled.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from apimachinery.unstructured import Json, at, entries
from defaulter.codecs import normalize_address
from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.kubevirt_defaults import ClusterConfig, add_devices, set_kubevirt_defaults
from defaulter.machine_types import is_canonical, is_version_of
from defaulter.undefaulted import fields_left_to_libvirt
from defaulter.vm_paths import VMLocation, locate, opted_out


def fill_stored_values(editor: DocumentEditor, location: VMLocation, old: Json, cluster: ClusterConfig) -> None:
    add_devices(editor, location, cluster)
    _fill_machine_type(editor, location, old)
    editor.fill(location.record, at(old, *location.record))
    # A value may make another field fillable: a disk's address is fillable once its bus is set.
    while _fill_once(editor, location, old, cluster):
        pass


def _fill_once(editor: DocumentEditor, location: VMLocation, old: Json, cluster: ClusterConfig) -> bool:
    # A VM with a preference has stored values too: defaulting wrote what the preference brought.
    trial, location = DocumentEditor(editor.document), replace(location, has_preference=False)
    set_kubevirt_defaults(trial, location, replace(cluster, binding="leave"))
    unset = [path for path, _ in trial.filled]
    unset += fields_left_to_libvirt(trial.document, location, cluster.macs)
    filled = False
    for path in unset:
        old_path = _old_path(editor.document, old, path)
        value = at(old, *old_path) if old_path is not None else None
        if old_path is None or is_unset(value) or isinstance(value, dict | list):
            continue
        if _still_valid(editor, location, path, old_path, old, value):
            filled = editor.fill(path, value) or filled
    return filled


def _old_path(document: Json, old: Json, path: Path) -> Path | None:
    """The path of the same field in the stored document, where the device of that name may have another index."""
    for depth, step in enumerate(path):
        if isinstance(step, int):
            name = at(document, *path[: depth + 1], "name")
            index = next((i for i, item in entries(old, *path[:depth]) if item.get("name") == name), None)
            if index is None or name is None:
                return None
            return (*path[:depth], index, *path[depth + 1 :])
    return path


def _still_valid(
    editor: DocumentEditor, location: VMLocation, path: Path, old_path: Path, old: Json, value: Any
) -> bool:
    """Whether a stored value still fits: the interface has the same model, and no other device has the address."""
    field = path[-1]
    if field not in ("pciAddress", "macAddress"):
        return True
    same_model = editor.get((*path[:-1], "model")) == at(old, *old_path[:-1], "model")
    if field == "pciAddress" and "interfaces" in path and not same_model:
        return False
    return normalize_address(value) not in map(normalize_address, _addresses(editor.document, location, str(field)))


def _addresses(document: Json, location: VMLocation, field: str) -> Iterator[Any]:
    devices = (*location.spec, "domain", "devices")
    yield from (at(disk, "disk", field) for _, disk in entries(document, *devices, "disks"))
    nics = [nic for _, nic in entries(document, *devices, "interfaces") if nic.get("state") != "absent"]
    yield from (nic.get(field) for nic in nics)


def with_machine_type(document: Json, vmi: Json | None) -> Json:
    """The document, with the machine type that the guest of the VMI runs or has run, if the document has none or an
    alias of that type. KubeVirt writes the type into the VMI's status when the guest runs."""
    location, ran = locate(document), at(vmi, "status", "machine", "type")
    if location is None or opted_out(document) or not isinstance(ran, str) or not is_canonical(ran):
        return document
    editor = DocumentEditor(document)
    machine = editor.get(path := (*location.spec, "domain", "machine", "type"))
    if is_unset(machine):
        editor.fill(path, ran)
    elif isinstance(machine, str) and is_version_of(machine, ran):
        editor.replace(path, ran)
    return editor.document


def _fill_machine_type(editor: DocumentEditor, location: VMLocation, old: Json) -> None:
    """Replaces an alias by the machine type of the stored VM, even if QEMU resolves the alias to another type now."""
    path = (*location.spec, "domain", "machine", "type")
    alias, machine_type = editor.get(path), at(old, *path)
    if isinstance(alias, str) and isinstance(machine_type, str) and is_version_of(alias, machine_type):
        editor.replace(path, machine_type)
