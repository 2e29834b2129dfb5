"""Keeps the values of a stored VM where a new version of its document leaves them unset.

Applying a bare manifest again loses no address, and a new device never takes the address of another. Devices are
matched by name. A removed device stays removed: only fields that would get a default are looked up.
"""

from collections.abc import Iterator
from typing import Any

from apimachinery.unstructured import Json, at, entries
from defaulter.codecs import normalize_address
from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.kubevirt_defaults import ClusterConfig, add_devices, set_kubevirt_defaults
from defaulter.machine_types import is_version_of
from defaulter.undefaulted import CLUSTER_INDEPENDENT, fields_left_to_libvirt
from defaulter.vm_paths import VMLocation, locate, opted_out


def preserve_stored_values(document: Json, old: Json) -> Json:
    """The document with the values of the stored document (`old`) that it leaves unset. It is the part of an answer to
    an update that needs no service."""
    location = locate(document)
    if location is None or opted_out(document) or not isinstance(at(document, *location.spec), dict):
        return document
    editor = DocumentEditor(document)
    fill_stored_values(editor, location, old, CLUSTER_INDEPENDENT)
    return editor.document


def fill_stored_values(editor: DocumentEditor, location: VMLocation, old: Json, cluster: ClusterConfig) -> None:
    add_devices(editor, location, cluster)
    _fill_machine_type(editor, location, old)
    editor.fill(location.record, at(old, *location.record))
    # A value that is kept may open another field, as a disk's bus opens its address.
    while _fill_once(editor, location, old, cluster):
        pass


def _fill_once(editor: DocumentEditor, location: VMLocation, old: Json, cluster: ClusterConfig) -> bool:
    trial = DocumentEditor(editor.document)
    set_kubevirt_defaults(trial, location, cluster)
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
    """The same field of the device with the same name in the stored document, at whatever index it is there."""
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
    """An interface keeps its PCI address only with its model. No address is kept that another device has now."""
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


def _fill_machine_type(editor: DocumentEditor, location: VMLocation, old: Json) -> None:
    """An alias keeps the machine type that it had when the VM was stored, whatever QEMU resolves it to today."""
    path = (*location.spec, "domain", "machine", "type")
    alias, machine_type = editor.get(path), at(old, *path)
    if isinstance(alias, str) and isinstance(machine_type, str) and is_version_of(alias, machine_type):
        editor.replace(path, machine_type)
