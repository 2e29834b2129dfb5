"""The defaults that libvirt chooses: machine type, addresses and models, read back from a domain that it defines.

`LibvirtDefaults` defines the domain that virt-launcher would define. libvirt stops at the first error of a domain, so
the domain is defined again without the invalid field, until all errors are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from defaulter import domain, hook, pci_addresses, validation, walker
from defaulter.added_devices import Ports, read_ports
from defaulter.cluster_values import MACHINE_TYPE, is_machine_type_of_cluster, machine_type_source, model_source
from defaulter.error_paths import find_error_path
from defaulter.errors import DomainRejected, FieldError, InvalidDocument, LibvirtUnavailable
from defaulter.fields import ARCHITECTURES, CPU_FEATURES, DEVICES, DOMAIN, HOST_CPUS, INTERFACES
from defaulter.json_paths import DocumentEditor, Path
from defaulter.kubevirt_defaults import ClusterConfig, with_input_device
from defaulter.libvirt_cache import Choice, LibvirtCache, LibvirtChoices, cache_key
from defaulter.limits import MAX_LIST_ENTRIES
from defaulter.machine_types import (
    ALIASES,
    find_substitute,
    is_canonical,
    resolve_alias,
    unavailable_message,
)
from defaulter.nodes import CPUs, MachineTypes
from defaulter.version_differences import find_limited, find_replacements
from defaulter.vm_paths import PCI_SLOT_COUNT, VMLocation, places_on_root_complex
from defaulter.vmi_spec import alias, architecture, has_root_ports, is_emulated, memory_bytes, virtio_model
from defaulter.xml import Element
from poolhouse.api.apimachinery.problem import format_path
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kubevirt.versions import READS_BACK_WITHOUT_PLACEHOLDERS, Release

if TYPE_CHECKING:  # this module can be imported without libvirt
    from defaulter.driver import Libvirt

MAX_LIBVIRT_ERRORS = 8


def libvirt_architecture(spec: Json) -> str:
    return ARCHITECTURES[architecture(spec)]


class LibvirtDefaults:
    """The defaults of one VMI spec, to which the defaults of KubeVirt have been applied already.

    Raises `LibvirtUnavailable` where this host has no emulator for the VM's architecture.
    """

    def __init__(
        self,
        spec: Json,
        location: VMLocation,
        cluster: ClusterConfig,
        host: Libvirt,
        machine_types: MachineTypes | None,
        record: Any,
        record_key: str = "",
        cpus: CPUs | None = None,
        may_have_run: bool = False,
    ) -> None:
        self._spec, self._location, self._cluster, self._host = spec, location, cluster, host
        self._machine_types, self._cpus = machine_types, cpus
        self._record = record
        self._record_key, self._may_have_run = record_key, may_have_run
        known = host.machines().get(libvirt_architecture(spec))
        if known is None:
            raise LibvirtUnavailable(f"there is no emulator for {architecture(spec)} here")
        self._known = known

    def errors(self, old: Json | None) -> list[FieldError]:
        """Every error of the spec. libvirt's errors are included only if another error was found."""
        found = self.known_errors(old)
        return [*found, *self._further_errors(found)] if found else []

    def known_errors(self, old: Json | None) -> list[FieldError]:
        """The errors that are found without a define."""
        found = validation.validate_values(self._spec, self._known_cpu_models())
        found += self._excessive_slot_count()
        if self._record is not None:
            try:
                hook.read_record(str(self._record))
            except hook.InvalidHardwareRecord as error:
                found.append(FieldError(("..", "metadata", "annotations", hook.HARDWARE_ANNOTATION), str(error)))
        machine = at(self._spec, *MACHINE_TYPE)
        # A stored VM may still be changed when no node has its machine type any more.
        stored = at(old, *self._location.spec, *MACHINE_TYPE) == machine
        of_cluster = is_machine_type_of_cluster(machine, self._spec, self._cluster)
        if isinstance(machine, str) and is_canonical(machine) and not stored and not of_cluster:
            strict = self._cluster.unavailable_machines == "refuse" or machine not in self._known
            message = unavailable_message(machine, self._machine_types) if strict else None
            found += [] if message is None else [FieldError(MACHINE_TYPE, message)]
        if all(error.path != MACHINE_TYPE for error in found):
            found += self._unknown_family(machine)
        return found

    def _unknown_family(self, machine: Any) -> list[FieldError]:
        """An error if no machine type of this QEMU has the buses of the VM's. Raises `LibvirtUnavailable` if a node has
        the type, or if it is the cluster's."""
        machine = machine or self._cluster.settings.machine_types.get(architecture(self._spec))
        if (
            not isinstance(machine, str)
            or not machine
            or machine in self._known
            or find_substitute(machine, self._known)
        ):
            return []
        message = f"QEMU {self._host.qemu()} does not support the machine type {machine}, nor one of its family"
        if source := machine_type_source(machine, self._spec, self._cluster):
            raise LibvirtUnavailable(message + source)
        if self._machine_types is not None and machine in self._machine_types.somewhere:
            raise LibvirtUnavailable(message)
        return [FieldError(MACHINE_TYPE, message)]

    def _known_cpu_models(self) -> frozenset[str]:
        """The CPU models that this libvirt or a node's libvirt knows; empty if the nodes are unknown, because their
        libvirt may be newer."""
        ours = self._host.cpu_models(libvirt_architecture(self._spec))
        return ours | self._cpus.models if ours and self._cpus is not None else frozenset()

    def ports(self, spec: Json) -> Ports | None:
        """The root ports of this VM with another spec; None without root ports. Raises `DomainRejected`."""
        hotplug = self._hotplug_ports(spec)
        if hotplug is None:
            return None
        return read_ports(self._define_known(self._with_known_machine_type(spec))[0], hotplug.placeholders)

    def possible_ports(self, spec: Json, release: Release | None) -> list[Ports]:
        """The root ports that the VM can have at its next start with this spec: one result for a known release of
        KubeVirt, else one for each way in which releases choose them. Empty without root ports. Raises
        `DomainRejected`."""
        hotplug, known = self._hotplug_ports(spec), self._with_known_machine_type(spec)
        if hotplug is None:
            return []
        ways: tuple[bool, ...] = (True,) if hotplug.placeholders else (True, False)
        if release is not None and not hotplug.placeholders:
            ways = (release >= READS_BACK_WITHOUT_PLACEHOLDERS,)
        domains = (self._define(known, self._record, reads_back=way) for way in ways)
        return [read_ports(domain, hotplug.placeholders) for domain in domains]

    def choose(
        self, open_paths: set[Path], cache: LibvirtCache | None, left_open: frozenset[Path] = frozenset()
    ) -> tuple[LibvirtChoices, Element | None]:
        """libvirt's choices for these paths, except those that stay open, and libvirt's domain unless the choices come
        from the cache. Raises `InvalidDocument` with every error."""
        open_paths = open_paths - left_open
        machine_type, asked = self.resolve_machine_type(), self._with_known_machine_type(self._spec)
        settings = self._cluster.record, sorted(self._cluster.settings.usb_resources)
        inputs = (self._record, machine_type, at(asked, *MACHINE_TYPE), sorted(map(format_path, left_open)), settings)
        key = cache_key(self._spec, self._location, open_paths, inputs) if cache is not None else None
        cached = cache.get(key) if cache is not None else None
        if cached is not None:
            return cached, None
        final, defined, warnings = self._define_or_raise(asked)
        # The nodes may have another machine type than this QEMU.
        for element in final.iterfind("os/type"):
            element.set("machine", machine_type)
        values = [
            (path, value)
            for path, value in self._read(final)
            if (*self._location.spec, *path) in open_paths and (path != MACHINE_TYPE or is_canonical(machine_type))
        ]
        if pci_addresses.has_bridge(final):
            values = self._without_moving_addresses(defined, values)
        record = self._build_record(final) if self._cluster.record and not warnings else self._record
        choices = LibvirtChoices(tuple(values), record, warnings)
        if cache is not None:
            cache.put(key, choices)
        return choices, final

    def warnings(self) -> Iterator[str]:
        """What could not be checked, because this libvirt does not know it and no node says whether it does."""
        machine = at(self._spec, *MACHINE_TYPE)
        if self._machine_types is None and isinstance(machine, str) and is_canonical(machine):
            substitute = find_substitute(machine, self._known)
            if machine not in self._known and substitute is not None:
                yield (
                    f"QEMU {self._host.qemu()} does not have the machine type {machine}: the addresses were chosen with"
                    f" {self._known.get(substitute) or substitute}, and it is not known whether a node has the type"
                )
        model = at(self._spec, "domain", "cpu", "model")
        ours = self._host.cpu_models(libvirt_architecture(self._spec))
        if self._cpus is None and ours and isinstance(model, str) and model not in {*ours, *HOST_CPUS}:
            yield f"libvirt {self._host.version()} does not know the CPU model {model!r}" + model_source(
                model, self._cluster
            )
        for path, feature in walker.list_devices(CPU_FEATURES, self._spec):
            name = str(feature.get("name"))
            if self._cpus is not None and name in self._cpus.features:
                continue
            if not self._host.knows_cpu_feature(libvirt_architecture(self._spec), name):
                shown = format_path((*self._location.spec, *path))
                yield f"{shown}: libvirt {self._host.version()} does not know the CPU feature {name!r}"

    def resolve_machine_type(self) -> str:
        """The VM's machine type: canonical, or the alias if it must stay."""
        return self._resolve_machine_type(self._spec)

    def _resolve_machine_type(self, spec: Json) -> str:
        arch = architecture(spec)
        machine = str(at(spec, *MACHINE_TYPE) or self._cluster.settings.machine_types.get(arch) or ALIASES[arch])
        if is_canonical(machine) or self._may_have_run:
            return machine
        accepts = partial(self._cluster.settings.accepts_machine_type, arch)
        ours = self._known.get(machine)
        return resolve_alias(machine, ours, self._cluster.machines, self._machine_types, accepts) or machine

    def _with_known_machine_type(self, spec: Json) -> Json:
        """The spec with the machine type that the VM will have, or one of the same family that this QEMU has. An alias
        may mean another type here than on the nodes, with other limits."""
        machine = at(spec, *MACHINE_TYPE) or self._cluster.settings.machine_types.get(architecture(spec))
        resolved = self._resolve_machine_type(spec)
        if resolved in self._known:
            machine = resolved
        if not isinstance(machine, str):
            return spec
        substitute = machine if machine in self._known else find_substitute(machine, self._known)
        if substitute is None or substitute == at(spec, *MACHINE_TYPE):
            return spec
        editor = DocumentEditor(spec)
        editor.replace(MACHINE_TYPE, substitute)
        return editor.document

    def _define_or_raise(self, spec: Json) -> tuple[Element, Json, tuple[str, ...]]:
        try:
            return self._define_known(spec)
        except DomainRejected as error:
            self._blame_cluster(error, spec)
            first = FieldError(find_error_path(str(error), self._spec), str(error))
            errors = (first, *self._further_errors([first]))
            raise InvalidDocument(each.below(self._location.spec) for each in errors) from error

    def _blame_cluster(self, error: DomainRejected, spec: Json) -> None:
        """Raises `LibvirtUnavailable` if libvirt rejects the VM only because of the machine type that the KubeVirt
        object sets: KubeVirt stores such a VM."""
        machine, arch = at(spec, *MACHINE_TYPE), architecture(spec)
        wanted = at(self._spec, *MACHINE_TYPE) or self._cluster.settings.machine_types.get(arch)
        source = machine_type_source(wanted, self._spec, self._cluster)
        if not source or machine == ALIASES[arch]:
            return
        editor = DocumentEditor(spec)
        editor.replace(MACHINE_TYPE, ALIASES[arch])
        with suppress(DomainRejected):
            self._define_known(editor.document)
            raise LibvirtUnavailable(f"the machine type {wanted}: {error}{source}") from error

    def _define_known(self, spec: Json) -> tuple[Element, Json, tuple[str, ...]]:
        """libvirt's domain with neutral values instead of those that libvirt does not know, the spec with these values,
        and warnings about them."""
        editor = DocumentEditor(spec)
        warnings: list[str] = []
        for _ in range(MAX_LIBVIRT_ERRORS):
            try:
                return self._define(editor.document, self._record), editor.document, tuple(warnings)
            except DomainRejected as error:
                replacements = find_replacements(str(error), editor.document)
                if not replacements and self._nodes_are_newer:
                    replacements = find_limited(str(error), editor.document)
                if not replacements:
                    raise
                for each in replacements:
                    editor.replace(each.path, each.value)
                shown = format_path((*self._location.spec, *replacements[0].path))
                warnings.append(f"{shown} is not checked, because libvirt {self._host.version()} is too old: {error}")
        raise LibvirtUnavailable("libvirt knows too few of the values")

    @property
    def _nodes_are_newer(self) -> bool:
        """Whether this QEMU does not have the VM's machine type, so that its limits are not those of the nodes."""
        return self.resolve_machine_type() not in self._known

    def _without_moving_addresses(self, spec: Json, values: list[Choice]) -> list[Choice]:
        """The values without the PCI addresses that would move other devices when KubeVirt defines the domain. First
        the addresses of disks are left out, then those of NICs too.

        libvirt gives the bridge of conventional PCI devices the first bus that is free when it needs the bridge. With
        a later bus in use, this is another bus, and the devices behind the bridge and those after it move.
        """
        before = self._hardware(spec)
        for left_out in ((), ("disks",), ("disks", "interfaces")):
            kept = [choice for choice in values if not _is_address(choice[0], left_out)]
            editor = DocumentEditor(spec)
            for path, value in kept:
                editor.fill(path, value)
            with suppress(DomainRejected):
                if self._hardware(editor.document) == before:
                    break
        return kept

    def _hardware(self, spec: Json) -> list[str]:
        """The hardware with which each version of KubeVirt starts the VM without a hook."""
        return [self._record_of(self._define(spec, reads_back=reads_back)) for reads_back in (True, False)]

    def _record_of(self, domain: Element) -> str:
        return hook.build_record(domain, self._host.version(), self._host.qemu(), self._record_key)

    def _define(self, spec: Json, record: str | None = None, *, reads_back: bool = True) -> Element:
        root = domain.build(with_input_device(spec, self._location), self._cluster.settings.usb_resources)
        if places_on_root_complex(self._location) and not pci_addresses.place_on_root_complex(root):
            raise DomainRejected("no space is left on the root PCI bus")
        ports = self._hotplug_ports(spec)
        with self._host.scratch() as define:

            def define_with_record(text: str) -> str:
                return define(text if record is None else hook.restore_hardware(record, text))

            return pci_addresses.assign_pci_addresses(
                root, ports, virtio_model(spec), define_with_record, reads_back=reads_back
            )

    def _hotplug_ports(self, spec: Json) -> pci_addresses.HotplugPorts | None:
        if places_on_root_complex(self._location) or not has_root_ports(spec):
            return None
        nics = at(spec, "domain", "devices", "interfaces") or []
        return pci_addresses.hotplug_ports(len(nics), memory_bytes(spec), self._slot_count())

    def _slot_count(self) -> int | None:
        text = self._location.annotations.get(PCI_SLOT_COUNT)
        return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 4 else None

    def _excessive_slot_count(self) -> Iterator[FieldError]:
        count = self._slot_count()
        if count is not None and count > MAX_LIST_ENTRIES:
            path = ("..", "metadata", "annotations", PCI_SLOT_COUNT)
            yield FieldError(path, f"must be at most {MAX_LIST_ENTRIES}, not {count}")

    def _further_errors(self, found: list[FieldError]) -> Iterator[FieldError]:
        """libvirt's errors after the fields with known errors are removed."""
        editor = DocumentEditor(self._spec)
        known = {error.path for error in found}
        if not all(_remove(editor, error.path) for error in found):
            return
        for _ in range(MAX_LIBVIRT_ERRORS):
            try:
                self._define(editor.document)
                return
            except DomainRejected as error:
                replacements = find_replacements(str(error), editor.document)
                for each in replacements:
                    editor.replace(each.path, each.value)
                if replacements:
                    continue
                path = find_error_path(str(error), editor.document)
                if path not in known:
                    yield FieldError(path, str(error))
                known.add(path)
                if not _remove(editor, path):
                    return

    def _read(self, final: Element) -> Iterator[Choice]:
        """The values of a domain, by their paths in the spec. Devices are matched by alias, never by order."""
        yield from walker.read(DOMAIN, final, self._spec)
        for devices in DEVICES:
            elements = final.findall(devices.element)
            by_alias = {each.get("name"): element for element in elements for each in element.iterfind("alias")}
            for index, (path, device) in enumerate(walker.list_devices(devices, self._spec)):
                if devices.has_alias:
                    element = by_alias.get(alias(str(device.get("name"))))
                else:
                    element = elements[index] if index < len(elements) else None
                if element is not None and (devices is not INTERFACES or is_emulated(device)):
                    for inner, value in walker.read(devices.fields, element, device):
                        yield (*path, *inner), value

    def _build_record(self, final: Element) -> str:
        """The hardware record of the domain. A stored record stays, byte for byte, while it describes the domain."""
        record = self._record_of(final)
        return self._record if self._record is not None and hook.same_hardware(self._record, record) else record


def _is_address(path: Path, lists: tuple[str, ...]) -> bool:
    return path[-1] == "pciAddress" and len(path) > 2 and path[2] in lists


def _remove(editor: DocumentEditor, path: Path) -> bool:
    """Removes a value, or a whole device if the value is its name. False if valid values would be removed too."""
    if path and path[-1] == "name":
        path = path[:-1]
    if len(path) < 2 or path in (("domain", "devices"), ("domain", "devices", "disks")) or editor.get(path) is None:
        return False
    editor.replace(path, None)
    return True
