"""What a stored VM had decided stays decided, when a document that leaves it open replaces it.

A bare manifest applied once more loses no address, and a device that is new takes nobody's place. Devices are matched
by their names; what was removed is not brought back, since only fields that would be filled anyway are looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from defaulter.codecs import normalize_address
from defaulter.json_paths import DocumentEditor, Json, Path, get, is_unset, objects
from defaulter.kubevirt_defaults import ClusterConfig, add_devices, set_kubevirt_defaults
from defaulter.machine_types import is_version_of
from defaulter.undefaulted import fields_left_to_libvirt
from defaulter.vm_paths import VMLocation


def fill_stored_values(draft: DocumentEditor, where: VMLocation, old: Json, cluster: ClusterConfig) -> None:
    """Fills from the stored document what would else be decided anew."""
    add_devices(draft, where, cluster)
    _machine(draft, where, old)
    draft.fill(where.record, get(old, where.record))
    while _pass(draft, where, old, cluster):
        pass  # what is kept opens more, as a disk's bus opens its address; each pass fills something, so it ends


def _pass(draft: DocumentEditor, where: VMLocation, old: Json, cluster: ClusterConfig) -> bool:
    trial = DocumentEditor(draft.document)
    set_kubevirt_defaults(trial, where, cluster)
    wanted = [path for path, _ in trial.filled] + list(fields_left_to_libvirt(trial.document, where, cluster.macs))
    kept = False
    for path in wanted:
        before = _counterpart(draft.document, old, path)
        value = get(old, before) if before is not None else None
        if (
            is_unset(value)
            or isinstance(value, dict | list)
            or not _still_right(draft, where, path, before, old, value)
        ):
            continue
        kept = draft.fill(path, value) or kept
    return kept


def _counterpart(document: Json, old: Json, path: Path) -> Path | None:
    """The same field of the same device in the stored document, wherever in its list the device stands now."""
    for depth, step in enumerate(path):
        if isinstance(step, int):
            name = get(document, (*path[: depth + 1], "name"))
            index = next((i for i, item in objects(get(old, path[:depth])) if item.get("name") == name), None)
            if index is None or name is None:
                return None
            return (*path[:depth], index, *path[depth + 1 :])
    return path


def _still_right(
    draft: DocumentEditor, where: VMLocation, path: Path, before: Path | None, old: Json, value: Any
) -> bool:
    """A NIC's PCI address goes with its model, and no address is kept that the document gives to another device."""
    field = path[-1]
    if before is None or field not in ("pciAddress", "macAddress"):
        return True
    models = draft.get((*path[:-1], "model")), get(old, (*before[:-1], "model"))
    if field == "pciAddress" and "interfaces" in path and models[0] != models[1]:
        return False
    return normalize_address(value) not in map(normalize_address, _given(draft.document, where, str(field)))


def _given(document: Json, where: VMLocation, field: str) -> Iterator[Any]:
    devices = (*where.spec, "domain", "devices")
    yield from (get(disk, ("disk", field)) for _, disk in objects(get(document, (*devices, "disks"))))
    nics = [nic for _, nic in objects(get(document, (*devices, "interfaces"))) if nic.get("state") != "absent"]
    yield from (nic.get(field) for nic in nics)


def _machine(draft: DocumentEditor, where: VMLocation, old: Json) -> None:
    """An alias means what it meant when the VM was stored, not what the QEMU of today makes of it."""
    path = (*where.spec, "domain", "machine", "type")
    alias, decided = draft.get(path), get(old, path)
    if isinstance(alias, str) and isinstance(decided, str) and is_version_of(alias, decided):
        draft.replace(path, decided)
