"""What a stored VM had decided stays decided, when a document that leaves it open replaces it.

A bare manifest applied once more loses no address, and a device that is new takes nobody's place. Devices are matched
by their names; what was removed is not brought back, since only fields that would be filled anyway are looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apimachinery.unstructured import Json, at, entries
from defaulter.codecs import normalize_address
from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.kubevirt_defaults import ClusterConfig, add_devices, set_kubevirt_defaults
from defaulter.machine_types import is_version_of
from defaulter.undefaulted import fields_left_to_libvirt
from defaulter.vm_paths import VMLocation


def fill_stored_values(editor: DocumentEditor, location: VMLocation, old: Json, cluster: ClusterConfig) -> None:
    """Fills from the stored document what would else be decided anew."""
    add_devices(editor, location, cluster)
    _machine(editor, location, old)
    editor.fill(location.record, at(old, *location.record))
    while _pass(editor, location, old, cluster):
        pass  # what is kept opens more, as a disk's bus opens its address; each pass fills something, so it ends


def _pass(editor: DocumentEditor, location: VMLocation, old: Json, cluster: ClusterConfig) -> bool:
    trial = DocumentEditor(editor.document)
    set_kubevirt_defaults(trial, location, cluster)
    wanted = [path for path, _ in trial.filled] + list(fields_left_to_libvirt(trial.document, location, cluster.macs))
    kept = False
    for path in wanted:
        before = _counterpart(editor.document, old, path)
        value = at(old, *before) if before is not None else None
        if (
            is_unset(value)
            or isinstance(value, dict | list)
            or not _still_right(editor, location, path, before, old, value)
        ):
            continue
        kept = editor.fill(path, value) or kept
    return kept


def _counterpart(document: Json, old: Json, path: Path) -> Path | None:
    """The same field of the same device in the stored document, wherever in its list the device stands now."""
    for depth, step in enumerate(path):
        if isinstance(step, int):
            name = at(document, *path[: depth + 1], "name")
            index = next((i for i, item in entries(old, *path[:depth]) if item.get("name") == name), None)
            if index is None or name is None:
                return None
            return (*path[:depth], index, *path[depth + 1 :])
    return path


def _still_right(
    editor: DocumentEditor, location: VMLocation, path: Path, before: Path | None, old: Json, value: Any
) -> bool:
    """A NIC's PCI address goes with its model, and no address is kept that the document gives to another device."""
    field = path[-1]
    if before is None or field not in ("pciAddress", "macAddress"):
        return True
    models = editor.get((*path[:-1], "model")), at(old, *before[:-1], "model")
    if field == "pciAddress" and "interfaces" in path and models[0] != models[1]:
        return False
    return normalize_address(value) not in map(normalize_address, _given(editor.document, location, str(field)))


def _given(document: Json, location: VMLocation, field: str) -> Iterator[Any]:
    devices = (*location.spec, "domain", "devices")
    yield from (at(disk, "disk", field) for _, disk in entries(document, *devices, "disks"))
    nics = [nic for _, nic in entries(document, *devices, "interfaces") if nic.get("state") != "absent"]
    yield from (nic.get(field) for nic in nics)


def _machine(editor: DocumentEditor, location: VMLocation, old: Json) -> None:
    """An alias means what it meant when the VM was stored, not what the QEMU of today makes of it."""
    path = (*location.spec, "domain", "machine", "type")
    alias, decided = editor.get(path), at(old, *path)
    if isinstance(alias, str) and isinstance(decided, str) and is_version_of(alias, decided):
        editor.replace(path, decided)
