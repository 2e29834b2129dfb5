"""Keeps the values of a stored VM where a new version of its document leaves them unset.

If a user applies a manifest without defaults again, the VM keeps its addresses. A new device never gets the address of
another device. Devices are matched by name. A removed device stays removed, because only unset fields are filled.
"""

from dataclasses import replace

from defaulter.codecs import normalize_address
from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.kubevirt_defaults import ClusterConfig, add_devices, set_kubevirt_defaults
from defaulter.machine_types import is_canonical, is_version_of
from defaulter.undefaulted import fields_left_to_libvirt
from defaulter.vm_paths import VMLocation, locate, opted_out
from defaulter.vmi_spec import addresses
from poolhouse.api.apimachinery.unstructured import Json, at, entries

ADDRESS_FIELDS = ("pciAddress", "macAddress")


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
    devices = _StoredDevices(old)
    taken: dict[str, set[str]] = {field: set() for field in ADDRESS_FIELDS}
    for field, value in addresses(editor.get(location.spec)):
        taken[field].add(normalize_address(value))
    filled = False
    for path in unset:
        old_path = devices.path(editor.document, path)
        value = at(old, *old_path) if old_path is not None else None
        if old_path is None or is_unset(value) or isinstance(value, dict | list):
            continue
        known = taken.get(str(path[-1]))
        if known is None:
            filled = editor.fill(path, value) or filled
        elif normalize_address(value) not in known and _has_same_model(editor, path, old_path, old):
            filled = editor.fill(path, value) or filled
            known.add(normalize_address(value))
    return filled


class _StoredDevices:
    """Finds devices of a stored document by name. The index of each list is built once, because a VM has many."""

    def __init__(self, old: Json) -> None:
        self._old = old
        self._indexes: dict[Path, dict[str, int]] = {}

    def path(self, document: Json, path: Path) -> Path | None:
        """The path of the same field in the stored document, where the device of that name may have another index."""
        for depth, step in enumerate(path):
            if isinstance(step, int):
                name = at(document, *path[: depth + 1], "name")
                index = self._index(path[:depth]).get(name) if isinstance(name, str) else None
                return None if index is None else (*path[:depth], index, *path[depth + 1 :])
        return path

    def _index(self, path: Path) -> dict[str, int]:
        if path not in self._indexes:
            named = ((item.get("name"), index) for index, item in entries(self._old, *path))
            # Reversed, so that the first device of a name counts.
            self._indexes[path] = {name: index for name, index in reversed([*named]) if isinstance(name, str)}
        return self._indexes[path]


def _has_same_model(editor: DocumentEditor, path: Path, old_path: Path, old: Json) -> bool:
    """Whether a stored address still fits the device: an interface of another model has another PCI address."""
    if path[-1] != "pciAddress" or "interfaces" not in path:
        return True
    return bool(editor.get((*path[:-1], "model")) == at(old, *old_path[:-1], "model"))


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
