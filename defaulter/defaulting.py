"""A VM's document in, the same document out with every field that its guest can see.

The order: what the stored document had decided, what KubeVirt itself would decide, who the VM is, and then libvirt's
choices, read back from the domain that KubeVirt would have defined. Nothing that was given is ever changed, but for a
machine alias that is replaced by the machine it means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import uuid4

from apimachinery.problem import Problem
from apimachinery.unstructured import Json, at, entries
from defaulter import domain, hook, identity, libvirt_vm, pci_addresses, validation, vmi_spec, walker, xml
from defaulter.codecs import normalize_address
from defaulter.error_paths import find_error_path
from defaulter.errors import DomainRejected, FieldError, InvalidDocument, LibvirtUnavailable, raise_errors
from defaulter.fields import ARCHITECTURES, CPU_FEATURES, DEVICES, DOMAIN, INTERFACES
from defaulter.json_paths import DocumentEditor, Path, is_unset, parse_path
from defaulter.json_paths import format_path as shown
from defaulter.kubevirt_defaults import (
    ClusterConfig,
    has_root_ports,
    holds_addresses,
    is_emulated,
    set_kubevirt_defaults,
    with_input_device,
)
from defaulter.libvirt_cache import LibvirtCache, LibvirtChoices, cache_key
from defaulter.machine_types import (
    ALIASES,
    MachineTypes,
    find_substitute,
    is_canonical,
    limited_message,
    resolve_alias,
    unavailable_message,
)
from defaulter.stored_values import fill_stored_values
from defaulter.undefaulted import fields_left_to_libvirt, interfaces_without_mac
from defaulter.vm_paths import PCI_SLOT_COUNT, VMLocation, locate, opted_out, places_on_root_complex
from defaulter.xml import Element

MAX_LIBVIRT_ERRORS = 8
"""libvirt stops at the first thing it dislikes; asked again without it, it names the next"""

_MACHINE = parse_path("domain.machine.type")


class Hypervisor(Protocol):
    """The libvirt that is asked."""

    def scratch(self) -> AbstractContextManager[Callable[[str], str]]: ...

    def machines(self) -> dict[str, dict[str, str | None]]: ...

    def cpu_models(self, arch: str) -> frozenset[str]: ...

    def knows_cpu_feature(self, arch: str, name: str) -> bool: ...

    def version(self) -> str: ...

    def qemu(self) -> str: ...


@dataclass(frozen=True)
class VMRequest:
    """One document to complete, with what is known about it beside itself."""

    document: Json
    old: Json | None = None
    namespace: str | None = None
    seed: str = ""
    machine_types: MachineTypes | None = None
    """what the nodes can run, where somebody who knows has said so"""
    seed_is_unique: bool = False
    """the seed is of this one document, so that identity can follow from it without a name"""


@dataclass(frozen=True)
class DefaultedVM:
    document: Json
    warnings: list[str] = field(default_factory=list)
    domain: Element | None = None
    """libvirt's domain after the last pass; None where libvirt was not asked"""


def set_defaults(
    request: VMRequest, cluster: ClusterConfig, host: Hypervisor, cache: LibvirtCache | None = None
) -> DefaultedVM:
    """Raises `Refused` with every problem of the document, `Unable` where this libvirt cannot decide it.

    With shapes, libvirt is not asked about one that it has decided before.
    """
    if libvirt_vm.is_libvirt_vm(request.document):
        return _libvirt_shaped(request, host)
    location = locate(request.document, request.namespace)
    if location is None:
        kind = request.document.get("kind")
        raise InvalidDocument(
            [Problem("kind", "is required" if kind is None else f"{kind!r} has no virtual machine in it")]
        )
    if opted_out(request.document):
        return DefaultedVM(request.document)
    raise_errors(location.spec, validation.validate_types(at(request.document, *location.spec)))
    editor = prepare(request, location, cluster)
    if request.old is not None and _settled(editor, location, request.old, cluster):
        return DefaultedVM(editor.document, list(_warnings(request, editor, location)))
    domain_xml = _decide_rest(editor, location, request, cluster, host, cache)
    warnings = [*_warnings(request, editor, location), *_unknown_features(editor.get(location.spec), location, host)]
    return DefaultedVM(editor.document, warnings, domain_xml)


def _libvirt_shaped(request: VMRequest, host: Hypervisor) -> DefaultedVM:
    given = at(request.document, *libvirt_vm.SPEC)
    raise_errors(libvirt_vm.SPEC, libvirt_vm.validate(given))
    name = str(at(request.document, "metadata", "name") or "")
    namespace = str(at(request.document, "metadata", "namespace") or request.namespace or "default")
    if name or request.seed_is_unique:
        given = libvirt_vm.add_identity(given, request.seed, namespace, name)
    try:
        with host.scratch() as define:
            domain_xml = xml.read(define(xml.write(libvirt_vm.build(given, name))))
    except DomainRejected as error:
        raise InvalidDocument([libvirt_vm.locate_error(error, given).below(libvirt_vm.SPEC)]) from error
    editor = DocumentEditor(request.document)
    editor.replace(libvirt_vm.SPEC, libvirt_vm.merge(given, domain_xml))
    return DefaultedVM(editor.document, [], domain_xml)


def prepare(request: VMRequest, location: VMLocation, cluster: ClusterConfig) -> DocumentEditor:
    """All that is decided without libvirt."""
    editor = DocumentEditor(request.document)
    if request.old is not None:
        fill_stored_values(editor, location, request.old, cluster)
        if is_canonical(str(at(request.old, *location.spec, *_MACHINE) or "")):
            # It was decided when this was not yet written down: now it would only say that a VM must be restarted.
            cluster = replace(cluster, video="leave")
    set_kubevirt_defaults(editor, location, cluster)
    _identify(editor, location, request, cluster)
    return editor


def _decide_rest(
    editor: DocumentEditor,
    location: VMLocation,
    request: VMRequest,
    cluster: ClusterConfig,
    host: Hypervisor,
    cache: LibvirtCache | None,
) -> Element | None:
    """What libvirt decides; its domain, where it had to be asked."""
    spec, record = editor.get(location.spec), editor.get(location.record)
    known = _emulator(spec, host)
    faults = [*validation.validate_values(spec, host.cpu_models(_arch(spec))), *_damage(record, location)]
    if cluster.unavailable_machines == "refuse":
        faults += _unoffered(spec, location, request)
    if faults:
        raise_errors(location.spec, [*faults, *_further(spec, location, faults, host)])
    open_paths = set(fields_left_to_libvirt(editor.document, location, cluster.macs))
    asked = _known_machine(spec, cluster, known, request.machine_types)
    real = _real_machine(spec, cluster, known, request.machine_types)
    shape = cache_key(spec, location, open_paths, (record, real, at(asked, *_MACHINE))) if cache is not None else None
    decided = cache.get(shape) if cache is not None else None
    domain_xml = None
    if decided is None:
        domain_xml = _laid_out(spec, location, asked, host, record)
        vmi_spec.rename_machine(domain_xml, real)
        choices = tuple(choice for choice in _choices(spec, domain_xml) if (*location.spec, *choice[0]) in open_paths)
        decided = LibvirtChoices(choices, _recorded(record, domain_xml, host) if cluster.record else record)
        if cache is not None:
            cache.put(shape, decided)
    _write_down(editor, location, decided)
    return domain_xml


def _unoffered(spec: Json, location: VMLocation, request: VMRequest) -> Iterator[FieldError]:
    """A machine type that nobody has, unless the VM was stored with it: it must stay possible to edit it."""
    machine = at(spec, *_MACHINE)
    if isinstance(machine, str) and is_canonical(machine) and at(request.old, *location.spec, *_MACHINE) != machine:
        sentence = unavailable_message(machine, request.machine_types)
        if sentence is not None:
            yield FieldError(_MACHINE, sentence)


def _damage(record: Any, location: VMLocation) -> Iterator[FieldError]:
    if record is not None:
        try:
            hook.read_record(str(record))
        except hook.InvalidHardwareRecord as error:
            yield FieldError(("..", "metadata", "annotations", hook.HARDWARE_ANNOTATION), str(error))


def _recorded(record: str | None, domain_xml: Element, host: Hypervisor) -> str:
    """The record of the domain; the one that stands, byte for byte, as long as it still describes it."""
    fresh = hook.build_record(domain_xml, host.version(), host.qemu())
    return record if record is not None and hook.same_hardware(record, fresh) else fresh


def _settled(editor: DocumentEditor, location: VMLocation, old: Json, cluster: ClusterConfig) -> bool:
    """Whether the stored document has the same hardware, so that libvirt has judged it before."""
    parts = ("domain", "volumes", "networks", "architecture")
    if cluster.record and editor.get(location.record) is None:
        return False
    places = [location.record, *((*location.spec, part) for part in parts)]
    same = all(at(old, *place) == editor.get(place) for place in places)
    return same and not any(fields_left_to_libvirt(editor.document, location, cluster.macs))


def _identify(editor: DocumentEditor, location: VMLocation, request: VMRequest, cluster: ClusterConfig) -> None:
    """Who the VM is. Without a name, as under generateName, nothing can follow from it: chance decides."""
    known, seed = bool(location.name) or request.seed_is_unique, request.seed
    if not location.is_template:
        for part in ("uuid", "serial"):
            value = identity.firmware_id(seed, location.namespace, location.name, part) if known else str(uuid4())
            editor.fill((*location.spec, "domain", "firmware", part), value)
    if cluster.macs == "deterministic" and known:
        interfaces = [nic for _, nic in entries(editor.get((*location.spec, *parse_path(INTERFACES.spec))))]
        taken = {normalize_address(nic.get("macAddress")) for nic in interfaces}
        for path in list(interfaces_without_mac(editor.document, location, cluster.macs)):
            device = str(editor.get((*path[:-1], "name")))
            value = identity.mac_address(seed, location.namespace, location.name, device, frozenset(taken))
            taken.add(value)
            editor.fill(path, value)


def _arch(spec: Json) -> str:
    return ARCHITECTURES[vmi_spec.architecture(spec)]


def _emulator(spec: Json, host: Hypervisor) -> dict[str, str | None]:
    """The machine types of the emulator that the spec needs."""
    machines = host.machines().get(_arch(spec))
    if machines is None:
        raise LibvirtUnavailable(f"there is no emulator for {vmi_spec.architecture(spec)} here")
    return machines


def _laid_out(spec: Json, location: VMLocation, asked: Json, host: Hypervisor, record: str | None) -> Element:
    """libvirt's domain after KubeVirt's passes, or every reason why there is none."""
    try:
        return _ask(asked, location, host, record)
    except DomainRejected as error:
        first = FieldError(find_error_path(str(error), spec), str(error))
        raise InvalidDocument(
            [fault.below(location.spec) for fault in (first, *_further(spec, location, [first], host))]
        ) from error


def _real_machine(
    spec: Json, cluster: ClusterConfig, known: dict[str, str | None], machine_types: MachineTypes | None
) -> str:
    """What is written down: a canonical machine as it is, an alias as what it means on the nodes."""
    machine = at(spec, *_MACHINE) or ALIASES[vmi_spec.architecture(spec)]
    if is_canonical(machine):
        return str(machine)
    return resolve_alias(machine, known.get(machine) or machine, cluster.machines, machine_types)


def _known_machine(
    spec: Json, cluster: ClusterConfig, known: dict[str, str | None], machine_types: MachineTypes | None
) -> Json:
    """The spec with a machine that our QEMU has, where the cluster's nodes have another of the same family."""
    machine = at(spec, *_MACHINE)
    if not isinstance(machine, str) or machine in known:
        return spec
    stand_in = find_substitute(machine, known, cluster.machines, machine_types)
    if stand_in is None:
        return spec
    changed = DocumentEditor(spec)
    changed.replace(_MACHINE, stand_in)
    return changed.document


def _ask(spec: Json, location: VMLocation, host: Hypervisor, record: str | None = None) -> Element:
    root = domain.build(with_input_device(spec, location))
    room = None
    if places_on_root_complex(location):
        if not pci_addresses.place_on_root_complex(root):
            raise DomainRejected("no space is left on the root PCI bus")
    elif has_root_ports(spec):
        nics = at(spec, *parse_path(INTERFACES.spec)) or []
        room = pci_addresses.hotplug_ports(len(nics), vmi_spec.memory_bytes(spec), _slots(location))
    with host.scratch() as define:

        def enforced(text: str) -> str:
            return define(text if record is None else hook.restore_hardware(record, text))

        return pci_addresses.assign_pci_addresses(root, room, vmi_spec.virtio_model(spec), enforced)


def _slots(location: VMLocation) -> int | None:
    text = location.annotations.get(PCI_SLOT_COUNT)
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 4 else None


def _further(spec: Json, location: VMLocation, faults: list[FieldError], host: Hypervisor) -> Iterator[FieldError]:
    """What libvirt would say besides: it is asked again without what was found wrong."""
    without = DocumentEditor(spec)
    known = {fault.path for fault in faults}
    for fault in faults:
        if not _withhold(without, fault.path):
            return
    for _ in range(MAX_LIBVIRT_ERRORS):
        try:
            _ask(without.document, location, host)
            return
        except DomainRejected as error:
            path = find_error_path(str(error), without.document)
            if path not in known:
                yield FieldError(path, str(error))
            known.add(path)
            if not _withhold(without, path):
                return


def _withhold(editor: DocumentEditor, path: Path) -> bool:
    """Takes a value out, and its device with a name; False where that would take out more than what is wrong."""
    if path and path[-1] == "name":
        path = path[:-1]
    if len(path) < 2 or path in (("domain", "devices"), ("domain", "devices", "disks")) or editor.get(path) is None:
        return False
    editor.replace(path, None)
    return True


def _write_down(editor: DocumentEditor, location: VMLocation, decided: LibvirtChoices) -> None:
    if decided.record is not None and decided.record != editor.get(location.record):
        editor.replace(location.record, decided.record)
    for path, value in decided.choices:
        place = (*location.spec, *path)
        if path == _MACHINE:
            editor.replace(place, value)
        else:
            editor.fill(place, value)


def _choices(spec: Json, domain_xml: Element) -> Iterator[tuple[Path, Any]]:
    """What libvirt decided, under the paths that a spec has for it. Devices are found by alias, never by order."""
    for _, path, value in walker.read(DOMAIN, domain_xml, spec):
        yield path, value
    for devices in DEVICES:
        elements = domain_xml.findall(devices.element)
        by_alias = {alias.get("name"): element for element in elements for alias in element.iterfind("alias")}
        for index, (path, device) in enumerate(walker.list_devices(devices, spec)):
            if devices.has_alias:
                element = by_alias.get(vmi_spec.alias(str(device.get("name"))))
            else:
                element = elements[index] if index < len(elements) else None
            if element is not None and (devices is not INTERFACES or is_emulated(device)):
                for _, inner, value in walker.read(devices.fields, element, device):
                    yield (*path, *inner), value


def _warnings(request: VMRequest, editor: DocumentEditor, location: VMLocation) -> Iterator[str]:
    machine = (*location.spec, *_MACHINE)
    alias, real = at(request.document, *machine), editor.get(machine)
    if alias and alias != real:
        yield f"machine type {alias} is an alias that moves with QEMU; it was made {real}"
    if isinstance(real, str) and is_canonical(real) and at(request.old, *machine) != real:
        sentence = unavailable_message(real, request.machine_types) or limited_message(real, request.machine_types)
        if sentence is not None:
            yield sentence
    spec = editor.get(location.spec)
    if not location.has_instancetype and is_unset(at(spec, "domain", "memory", "guest")):
        yield "no memory is given: KubeVirt cannot start this VM"
    if not holds_addresses(spec, location) and spec.get("architecture") != "s390x":
        reason = (
            "KubeVirt places devices on the root complex itself"
            if places_on_root_complex(location)
            else "a disk or NIC of this VM is conventional PCI"
        )
        yield f"PCI addresses are not written down: {reason}"


def _unknown_features(spec: Json, location: VMLocation, host: Hypervisor) -> Iterator[str]:
    """No reason to refuse it: the libvirt of a node may be newer."""
    for path, feature in walker.list_devices(CPU_FEATURES, spec):
        name = str(feature.get("name"))
        if not host.knows_cpu_feature(_arch(spec), name):
            yield f"{shown((*location.spec, *path))}: libvirt {host.version()} knows no CPU feature {name!r}"
