"""Sets the defaults of a VM: fills every field of its document that the guest can see.

Values come from four sources, in this order:

1. the stored document, on an update (`stored_values`); devices that the update adds get a free port (`added_devices`);
2. the rules of KubeVirt (`kubevirt_defaults`);
3. the name of the VM: its MAC addresses, firmware UUID and serial (`identity`);
4. libvirt, from the domain that virt-launcher would define (`libvirt_defaults`).

A value that is set never changes, except that a machine type alias is replaced by its canonical machine type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from defaulter import identity, libvirt_merge, libvirt_vm, structure, validation, xml
from defaulter.added_devices import (
    AddedDevice,
    Ports,
    choose_ports,
    find_added,
    is_copy_of_vm,
    launcher_release,
    left_for_bridge,
    possible_starts,
    running_addresses,
    without_devices,
)
from defaulter.cluster_values import (
    MACHINE_TYPE,
    check_architecture,
    machine_type_warnings,
    model_warnings,
    without_unknown_model,
)
from defaulter.errors import DomainRejected, InvalidDocument, raise_errors
from defaulter.hook import HARDWARE_ANNOTATION, InvalidHardwareRecord, is_sealed
from defaulter.instancetypes import (
    MatchedSpecs,
    apply_annotations,
    apply_attach_preferences,
    apply_specs,
    collapse,
)
from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.kubevirt_defaults import ClusterConfig, add_devices, set_kubevirt_defaults, with_input_device
from defaulter.libvirt_cache import LibvirtCache, LibvirtChoices
from defaulter.libvirt_defaults import LibvirtDefaults
from defaulter.machine_types import is_canonical
from defaulter.nodes import CPUs, MachineTypes
from defaulter.stored_values import fill_stored_values
from defaulter.superseded import Edit, follow_author
from defaulter.superseded import warnings as superseded_warnings
from defaulter.undefaulted import fields_left_to_libvirt, interfaces_without_mac, pci_address_warnings
from defaulter.vm_paths import VMLocation, is_libvirt_vm, locate, opted_out
from defaulter.xml import Element
from poolhouse.api.apimachinery.problem import Problem, format_path
from poolhouse.api.apimachinery.unstructured import Json, at, replaced, typed

if TYPE_CHECKING:
    from defaulter.driver import Libvirt

LEFT_OPEN = "the running domain has no root port that is known to be empty, so libvirt chooses the port at the hotplug"

LEFT_OUT = "libvirt does not get this field, and chooses the other values without it"
FOREIGN_RECORD = f"the annotation {HARDWARE_ANNOTATION} was ignored: this cluster did not write it"


@dataclass(frozen=True)
class VMRequest:
    document: Json
    old: Json | None = None
    """the stored document, on an update"""
    namespace: str | None = None
    seed: str = ""
    machine_types: MachineTypes | None = None
    """machine types of the nodes; None if the client does not watch nodes"""
    cpus: CPUs | None = None
    """CPU models and features that a node's libvirt knows; None if the client does not watch nodes"""
    vmi: Json | None = None
    """the VM's VMI, into whose domain added devices are hotplugged; empty if it exists but cannot be read"""
    record_key: str = ""
    """secret of the cluster that seals hardware records; empty where it has none"""
    seed_is_unique: bool = False
    """whether no other document has this seed, so that addresses can be derived without the VM's name"""
    may_have_run: bool = False
    """whether the guest may have run before, so that only a node knew what an alias of its machine type meant"""
    matched: MatchedSpecs = field(default_factory=MatchedSpecs)
    unread: str = ""
    """why the spec of the instance type or of the preference is not in `matched`"""


@dataclass(frozen=True)
class DefaultedVM:
    document: Json
    warnings: list[str] = field(default_factory=list)
    domain: Element | None = None
    """libvirt's domain after the last define; None if libvirt was not needed"""
    undecided: str = ""
    """why hardware is left to KubeVirt, which chooses it when the VM starts"""


def set_defaults(
    request: VMRequest, cluster: ClusterConfig, host: Libvirt, cache: LibvirtCache | None = None
) -> DefaultedVM:
    """Raises `InvalidDocument` with every problem, or `LibvirtUnavailable` if this libvirt cannot decide."""
    if is_libvirt_vm(request.document):
        return _set_libvirt_vm_defaults(request, host)
    location = locate(request.document, request.namespace)
    if location is None:
        kind = request.document.get("kind")
        message = "is required" if kind is None else f"{kind!r} contains no virtual machine"
        raise InvalidDocument([Problem("kind", message)])
    if opted_out(request.document):
        return DefaultedVM(request.document)
    holder = at(request.document, *location.spec[:-1])
    errors = [*structure.validate_metadata(holder), *structure.validate_types(at(holder, "spec"))]
    raise_errors(location.spec, errors)
    check_architecture(at(holder, "spec"), cluster)
    cluster = without_unknown_model(at(holder, "spec"), cluster, host, request.cpus)
    edit = follow_author(request.document, request.old)
    if location.has_preference and request.matched.preference is None:
        return _set_independent_defaults(request, edit, location, cluster, host)
    if request.matched != MatchedSpecs():
        return _set_matched_defaults(request, edit, location, cluster, host, cache)
    return _set_vmi_defaults(request, edit, location, cluster, host, cache)


def _set_matched_defaults(
    request: VMRequest,
    edit: Edit,
    location: VMLocation,
    cluster: ClusterConfig,
    host: Libvirt,
    cache: LibvirtCache | None,
) -> DefaultedVM:
    """The defaults of a VM with an instance type or a preference: those of the VM with their values, as far as a VM may
    hold them."""
    matched, editor, known = request.matched, DocumentEditor(edit.document), replace(location, has_preference=False)
    attached = apply_attach_preferences(editor.get(location.spec), matched.preference)
    if at(attached, "domain", "devices", "autoattachPodInterface") is False:
        cluster = replace(cluster, binding="leave")
    if request.old is not None and edit.old is not None:
        fill_stored_values(editor, known, edit.old, cluster)
        if _has_same_hardware(editor, known, request.old, cluster):
            return DefaultedVM(editor.document, list(_warnings(request, edit, editor, location, cluster)))
    add_devices(editor, known, cluster)
    given = editor.get(location.spec)
    started = with_input_device(apply_attach_preferences(given, matched.preference), location)
    expanded = apply_specs(started, matched)
    raise_errors(location.spec, structure.validate_types(expanded))
    known = replace(
        known,
        has_instancetype=location.has_instancetype and matched.instancetype is None,
        annotations=apply_annotations(location.annotations, matched),
    )
    of_start = replace(edit, document=replaced(editor.document, expanded, *location.spec), superseded={})
    done = _set_vmi_defaults(request, of_start, known, cluster, host, cache)
    defaulted = at(done.document, *location.spec)
    spec = collapse(given, expanded, defaulted, has_instancetype=location.has_instancetype)
    document = replaced(done.document, spec, *location.spec)
    return replace(done, document=document, warnings=[*superseded_warnings(edit, document), *done.warnings])


def _set_independent_defaults(
    request: VMRequest, edit: Edit, location: VMLocation, cluster: ClusterConfig, host: Libvirt
) -> DefaultedVM:
    """The defaults that no preference changes, for a VM whose preference is unknown. libvirt is not asked, because the
    preference may add devices and may make valid what would be invalid without it."""
    editor = prepare(request, edit, location, cluster)
    spec, record = editor.get(location.spec), _own_record(request, editor, location)
    libvirt_defaults = _asker(request, location, cluster, host, record)(spec)
    raise_errors(location.spec, libvirt_defaults.known_errors(request.old))
    if at(spec, *MACHINE_TYPE):
        editor.replace((*location.spec, *MACHINE_TYPE), libvirt_defaults.resolve_machine_type())
    reason = request.unread or "its preference was not sent to the defaulter"
    undecided = f"KubeVirt chooses hardware and addresses of this VM when it starts: {reason}"
    warnings = [*_warnings(request, edit, editor, location, cluster), undecided]
    return DefaultedVM(editor.document, warnings, undecided=undecided)


def _set_vmi_defaults(
    request: VMRequest,
    edit: Edit,
    location: VMLocation,
    cluster: ClusterConfig,
    host: Libvirt,
    cache: LibvirtCache | None,
) -> DefaultedVM:
    editor = prepare(request, edit, location, cluster)
    if request.old is not None and _has_same_hardware(editor, location, request.old, cluster):
        return DefaultedVM(editor.document, list(_warnings(request, edit, editor, location, cluster)))
    record = _own_record(request, editor, location)
    ask = _asker(request, location, cluster, host, record)
    libvirt_defaults = ask(editor.get(location.spec))
    raise_errors(location.spec, libvirt_defaults.errors(request.old))
    left_open = frozenset[Path]()
    _copy_running_addresses(editor, location, request, cluster)
    if added := find_added(editor.document, location, request.old, request.vmi is not None, cluster):
        running = _running_ports(request, cluster, host)
        left_open = _address_added_devices(editor, location, added, libvirt_defaults, running)
        libvirt_defaults = ask(editor.get(location.spec))
    open_paths = set(fields_left_to_libvirt(editor.document, location, cluster.macs))
    for_bridge = frozenset(left_for_bridge(editor.document, location, request.old) if request.vmi is not None else ())
    choices, domain = libvirt_defaults.choose(open_paths, cache, left_open | for_bridge)
    _fill(editor, location, choices)
    warnings = [
        *_warnings(request, edit, editor, location, cluster),
        *([FOREIGN_RECORD] if record is None and at(request.document, *location.record) is not None else ()),
        *choices.warnings,
        *libvirt_defaults.warnings(),
        *(f"{format_path(path)} stays open until the VM stops: {LEFT_OPEN}" for path in sorted(left_open, key=str)),
    ]
    return DefaultedVM(editor.document, warnings, domain)


def _asker(
    request: VMRequest, location: VMLocation, cluster: ClusterConfig, host: Libvirt, record: Any
) -> Callable[[Json], LibvirtDefaults]:
    return partial(
        LibvirtDefaults,
        location=location,
        cluster=cluster,
        host=host,
        machine_types=request.machine_types,
        cpus=request.cpus,
        record=record,
        record_key=request.record_key,
        may_have_run=request.may_have_run,
    )


def _own_record(request: VMRequest, editor: DocumentEditor, location: VMLocation) -> Any:
    """The hardware record of the document. A record that this cluster has neither sealed nor stored is ignored, because
    a user has made it. Without a key, each record is taken whose parts a VM can have."""
    record = editor.get(location.record)
    if not request.record_key or record is None or record == at(request.old, *location.record):
        return record
    try:
        return record if is_sealed(str(record), request.record_key) else None
    except InvalidHardwareRecord:
        return record  # its error is reported with the others


def _copy_running_addresses(
    editor: DocumentEditor, location: VMLocation, request: VMRequest, cluster: ClusterConfig
) -> None:
    vmi_location = locate(request.vmi, request.namespace) if request.vmi else None
    if request.vmi and vmi_location is not None:
        added = find_added(editor.document, location, request.old, True, cluster)
        for device, address in running_addresses(added, editor.document, location, request.vmi, vmi_location):
            editor.fill(device.path, address)


def _address_added_devices(
    editor: DocumentEditor,
    location: VMLocation,
    added: Sequence[AddedDevice],
    libvirt_defaults: LibvirtDefaults,
    running: Sequence[Ports] | None,
) -> frozenset[Path]:
    """Fills the addresses of added devices, and returns the paths of those that libvirt must choose at the hotplug."""
    try:
        next_start = libvirt_defaults.ports(without_devices(editor.document, location, [each.path for each in added]))
    except DomainRejected:
        return frozenset()  # The domain with the added devices is rejected too, and its error is reported.
    if next_start is None:
        return frozenset()
    left_open = set()
    for device, port in choose_ports(added, next_start, running):
        if device.is_nic and is_copy_of_vm(editor.document):
            left_open.add(device.path)
        elif port is not None:
            editor.fill(device.path, f"0000:{port:02x}:00.0")
        elif device.hotplugged and running != ():
            left_open.add(device.path)
    return frozenset(left_open)


def _running_ports(request: VMRequest, cluster: ClusterConfig, host: Libvirt) -> Sequence[Ports] | None:
    """The root ports that the domain of the VM's VMI can have: () without a VMI, None if they are unknown."""
    if request.vmi is None:
        return ()
    location = locate(request.vmi, request.namespace)
    starts = possible_starts(request.vmi, location) if location is not None else None
    if location is None or starts is None:
        return None
    if any(validation.validate_values(spec, frozenset()) for spec in starts):
        return None
    # Only the node knows whether the hook has restored the record.
    records = dict.fromkeys((None, typed(str, request.vmi, *location.record)))
    release = launcher_release(request.vmi, cluster.settings)
    try:
        found = [
            LibvirtDefaults(spec, location, cluster, host, request.machine_types, record).possible_ports(spec, release)
            for spec in starts
            for record in records
        ]
    except (DomainRejected, InvalidHardwareRecord):
        return None
    return [ports for each in found for ports in each] if all(found) else None


def _set_libvirt_vm_defaults(request: VMRequest, host: Libvirt) -> DefaultedVM:
    given, stored = (at(document, *libvirt_vm.SPEC) for document in (request.document, request.old))
    raise_errors(libvirt_vm.SPEC, libvirt_vm.validate(given))
    warnings = [f"{format_path(libvirt_vm.SPEC)}.{path}: {LEFT_OUT}" for path in libvirt_vm.unknown_fields(given)]
    name = str(at(request.document, "metadata", "name") or "")
    namespace = str(at(request.document, "metadata", "namespace") or request.namespace or "default")

    def complete(given: Json) -> tuple[Json, Element]:
        if name or request.seed_is_unique:
            given = libvirt_vm.add_identity(given, request.seed, namespace, name)
        with host.scratch() as define:
            domain = xml.read(define(xml.write(libvirt_vm.build(given, name))))
        return libvirt_merge.with_libvirt_values(given, domain), domain

    try:
        try:
            kept = libvirt_merge.with_stored_values(given, stored) if libvirt_vm.is_valid(stored) else given
            completed, domain = complete(kept)
        except DomainRejected as error:
            if kept == given:
                raise
            completed, domain = complete(given)
            warnings.append(f"the hardware of the stored VM was chosen anew, because libvirt refuses the edit: {error}")
    except DomainRejected as error:
        raise InvalidDocument([libvirt_vm.locate_error(error, given).below(libvirt_vm.SPEC)]) from error
    editor = DocumentEditor(request.document)
    editor.replace(libvirt_vm.SPEC, completed)
    return DefaultedVM(editor.document, warnings, domain)


def prepare(request: VMRequest, edit: Edit, location: VMLocation, cluster: ClusterConfig) -> DocumentEditor:
    """The edited document with every default that does not need libvirt."""
    editor = DocumentEditor(edit.document)
    if request.old is not None and edit.old is not None:
        fill_stored_values(editor, location, edit.old, cluster)
        was_defaulted = is_canonical(str(at(request.old, *location.spec, *MACHINE_TYPE) or ""))
        has_video = at(request.old, *location.spec, "domain", "devices", "video") is not None
        if was_defaulted and not has_video and "domain.devices.video.type" not in edit.newly_due:
            # The VM was stored without a display adapter. Adding one would require a restart.
            cluster = replace(cluster, video="leave")
    set_kubevirt_defaults(editor, location, cluster)
    _add_identity(editor, location, request, cluster)
    return editor


def _add_identity(editor: DocumentEditor, location: VMLocation, request: VMRequest, cluster: ClusterConfig) -> None:
    """Fills firmware UUID, serial and MAC addresses. They are random for a VM without a name (generateName)."""
    has_name = bool(location.name) or request.seed_is_unique
    if not location.is_template and has_name:
        identity.fill_firmware_ids(editor, location, request.seed)
    elif not location.is_template:
        for part in ("uuid", "serial"):
            editor.fill((*location.spec, "domain", "firmware", part), str(uuid4()))
    if cluster.macs == "deterministic" and has_name:
        interfaces = (*location.spec, "domain", "devices", "interfaces")
        unset = [int(path[-2]) for path in interfaces_without_mac(editor.document, location, cluster.macs)]
        for index, value in identity.mac_addresses(request.seed, location, editor.document, unset):
            editor.fill((*interfaces, index, "macAddress"), value)


def _has_same_hardware(editor: DocumentEditor, location: VMLocation, old: Json, cluster: ClusterConfig) -> bool:
    """Whether the stored document has the same hardware, which libvirt has therefore accepted before."""
    if cluster.record and editor.get(location.record) is None:
        return False
    parts = ("domain", "volumes", "networks", "architecture")
    paths = [location.record, *((*location.spec, part) for part in parts)]
    same = all(at(old, *path) == editor.get(path) for path in paths)
    left = set(fields_left_to_libvirt(editor.document, location, cluster.macs)) if same else set()
    return same and left <= set(left_for_bridge(editor.document, location, old))


def _fill(editor: DocumentEditor, location: VMLocation, choices: LibvirtChoices) -> None:
    if choices.record is not None and choices.record != editor.get(location.record):
        editor.replace(location.record, choices.record)
    for path, value in choices.values:
        if path == MACHINE_TYPE:
            editor.replace((*location.spec, *path), value)
        else:
            editor.fill((*location.spec, *path), value)


def _warnings(
    request: VMRequest, edit: Edit, editor: DocumentEditor, location: VMLocation, cluster: ClusterConfig
) -> Iterator[str]:
    yield from superseded_warnings(edit, editor.document)
    given, stored, spec = (at(each, *location.spec) for each in (request.document, request.old, editor.document))
    yield from machine_type_warnings(given, stored, spec, request.machine_types, cluster)
    if not location.has_instancetype:
        yield from model_warnings(spec, cluster)
    if not location.has_instancetype and is_unset(at(spec, "domain", "memory", "guest")):
        yield "the VM has no memory: KubeVirt cannot start it"
    yield from pci_address_warnings(editor.document, location)
