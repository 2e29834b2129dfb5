"""Checks of templates from which many VMs are created: dangling references, duplicate names, shared identities."""

import re
from collections.abc import Iterator
from typing import Any

from poolhouse.api.apimachinery.problem import Problem, format_path
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.checks.metadata import is_subdomain, label_problems
from poolhouse.api.kinds.validation import child_path, path_to, quoted
from poolhouse.api.kubevirt.fields import VM_SPEC, unknown_fields

_CONTROLLER_LABELS = (meta.POOL, meta.WARM_POOL, meta.REVISION, meta.ORDINAL, *meta.PROTECTED_LABELS)
_LONGEST_POSTFIX = "-2147483647"
_IMAGE = re.compile("[A-Za-z0-9][!-~]{0,1023}")
_REFERENCES = (
    ("persistentVolumeClaim", "claimName"),
    ("ephemeral", "persistentVolumeClaim", "claimName"),
    ("dataVolume", "name"),
    ("memoryDump", "claimName"),
    ("secret", "secretName"),
    ("configMap", "name"),
    ("serviceAccount", "serviceAccountName"),
)
"""fields of a volume that name an object of the namespace"""
_NOT_OF_A_TEMPLATE = {
    "finalizers": "each VM would keep it for ever; leave it out",
    "ownerReferences": "each VM belongs to the pool or set that creates it; leave it out",
}
_OF_ONE_OBJECT = ("uid", "resourceVersion", "generation", "deletionTimestamp", "selfLink", "managedFields")


def template_problems(document: Json) -> Iterator[Problem]:
    """Checks `spec.template`, the template of a VirtualMachine."""
    path = "spec.template"
    yield from template_metadata_problems(document, ("spec", "template"))
    yield from template_metadata_problems(document, ("spec", "template", "spec", "template"))
    for index, _ in entries(document, "spec", "template", "spec", "dataVolumeTemplates"):
        yield from _other_namespace(document, ("spec", "template", "spec", "dataVolumeTemplates", index))
    yield from vm_problems(at(document, "spec", "template", "spec"), f"{path}.spec")


def vm_problems(spec: Any, path: str) -> Iterator[Problem]:
    """Checks the spec of a VirtualMachine."""
    yield from _duplicates(spec, ("dataVolumeTemplates",), path, "metadata", "name")
    created = _names(spec, ("dataVolumeTemplates",), "metadata", "name")
    for index, template in entries(spec, "dataVolumeTemplates"):
        name = at(template, "metadata", "name")
        if isinstance(name, str) and not is_subdomain(name + _LONGEST_POSTFIX):
            yield Problem(
                f"{path}.dataVolumeTemplates[{index}].metadata.name",
                f"must be lower case letters, digits, '-' and '.', not {quoted(name)}",
            )
    inner = f"{path}.template"
    vmi = at(spec, "template", "spec")
    for index, volume in entries(vmi, "volumes"):
        name = at(volume, "dataVolume", "name")
        if isinstance(name, str) and name not in created:
            yield Problem(
                f"{inner}.spec.volumes[{index}].dataVolume.name",
                f"there is no dataVolumeTemplate {quoted(name)}; add it, or use persistentVolumeClaim to give all VMs "
                "the same existing disk",
            )
    yield from vmi_problems(vmi, f"{inner}.spec")


def template_metadata_problems(document: Json, path: tuple[str, ...]) -> Iterator[Problem]:
    """Checks the metadata of a template: labels, and fields that no template can have."""
    metadata, here = at(document, *path, "metadata"), f"{'.'.join(path)}.metadata"
    yield from template_label_problems(at(metadata, "labels"), f"{here}.labels")
    for field, reason in _NOT_OF_A_TEMPLATE.items():
        if at(metadata, field):
            yield Problem(f"{here}.{field}", f"is not for a template: {reason}")
    yield from _other_namespace(document, path)


def _other_namespace(document: Json, path: tuple[str | int, ...]) -> Iterator[Problem]:
    """KubeVirt refuses a VM with a disk template of another namespace. A VM has the namespace of its pool or set."""
    namespace, own = at(document, *path, "metadata", "namespace"), at(document, "metadata", "namespace")
    if namespace and own and namespace != own:
        created = "disks" if "dataVolumeTemplates" in path else "VMs"
        message = f"is {quoted(namespace)}, but {created} are created in the namespace of this object, {quoted(own)}"
        yield Problem(f"{format_path(path)}.metadata.namespace", message)


def template_label_problems(value: Any, path: str) -> Iterator[Problem]:
    yield from label_problems(value, path)
    for key in _CONTROLLER_LABELS:
        if at(value, key) is not None:
            yield Problem(child_path(path, key), "is written by Poolhouse itself; leave it out of the template")


def vmi_problems(spec: Any, path: str) -> Iterator[Problem]:
    """Checks the spec of a VirtualMachineInstance."""
    yield from _impossible_names(spec, path)
    disks, interfaces = ("domain", "devices", "disks"), ("domain", "devices", "interfaces")
    volumes, networks = ("volumes",), ("networks",)
    for lists in (disks, interfaces, volumes, networks):
        yield from _duplicates(spec, lists, path, "name")
    for users, used, noun, remedy in (
        (disks, volumes, "volume", "add it to volumes, or remove the disk"),
        (interfaces, networks, "network", "add it to networks, or remove the interface"),
        (networks, interfaces, "interface", "add it to interfaces, or remove the network"),
    ):
        known = _names(spec, used, "name")
        for index, item in entries(spec, *users):
            name = item.get("name")
            if isinstance(name, str) and name not in known:
                where = f"{path}.{'.'.join(users)}[{index}].name"
                yield Problem(where, f"there is no {noun} {quoted(name)}; {remedy}")


def _impossible_names(spec: Any, path: str) -> Iterator[Problem]:
    """Names of objects and images that cannot exist."""
    for index, volume in entries(spec, "volumes"):
        here = f"{path}.volumes[{index}]"
        for reference in _REFERENCES:
            name = at(volume, *reference)
            if isinstance(name, str) and not is_subdomain(name):
                message = f"must be the name of an object: lower case letters, digits, '-' and '.', not {quoted(name)}"
                yield Problem(f"{here}.{'.'.join(reference)}", message)
        yield from _impossible_image(at(volume, "containerDisk", "image"), f"{here}.containerDisk.image")
    kernel = ("domain", "firmware", "kernelBoot", "container", "image")
    yield from _impossible_image(at(spec, *kernel), f"{path}.{'.'.join(kernel)}")


def _impossible_image(image: Any, path: str) -> Iterator[Problem]:
    if isinstance(image, str) and not _IMAGE.fullmatch(image):
        yield Problem(path, f"must be the name of an image, without spaces, not {quoted(image)}")


def _names(spec: Any, lists: tuple[str, ...], *name: str) -> set[str]:
    found = (at(item, *name) for _, item in entries(spec, *lists))
    return {value for value in found if isinstance(value, str)}


def _duplicates(spec: Any, lists: tuple[str, ...], path: str, *name: str) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, item in entries(spec, *lists):
        value = at(item, *name)
        if isinstance(value, str) and first.setdefault(value, index) != index:
            where = f"{path}.{'.'.join(lists)}"
            yield Problem(
                f"{where}[{index}].{'.'.join(name)}",
                f"{quoted(value)} is taken by {where}[{first[value]}]; each must be different",
            )


def unknown_field_warnings(spec: Any, type_name: str) -> Iterator[str]:
    """Warnings about fields of `spec.template.spec` that no supported release of KubeVirt has. A newer release may have
    them."""
    for field in unknown_fields(spec, type_name):
        hint = f'; did you mean "{field.nearest}"?' if field.nearest else ""
        yield f"{path_to(field.path, 'spec.template.spec')}: KubeVirt has no such field, and ignores it{hint}"


def unused_metadata(document: Json) -> Iterator[str]:
    for field in _OF_ONE_OBJECT:
        if at(document, "spec", "template", "metadata", field) is not None:
            yield f"spec.template.metadata.{field} is not used: it belongs to one object"


def template_warnings(document: Json) -> Iterator[str]:
    """Warnings about fields of `spec.template` without effect, and about shared values that must differ between VMs."""
    spec = at(document, "spec", "template", "spec")
    yield from unknown_field_warnings(spec, VM_SPEC)
    yield from unused_metadata(document)
    if at(document, "spec", "template", "metadata", "name") is not None:
        yield "spec.template.metadata.name is not used: VMs are named after the pool"
    vmi, path = at(spec, "template", "spec"), "spec.template.spec.template.spec"
    for index, interface in entries(vmi, "domain", "devices", "interfaces"):
        if interface.get("macAddress"):
            yield f"{path}.domain.devices.interfaces[{index}].macAddress: every VM gets the same MAC address"
    for field in ("uuid", "serial"):
        if at(vmi, "domain", "firmware", field):
            yield f"{path}.domain.firmware.{field}: every VM gets the same firmware {field}"
    created = _names(spec, ("dataVolumeTemplates",), "metadata", "name")
    for index, volume in entries(vmi, "volumes"):
        claim = at(volume, "persistentVolumeClaim", "claimName")
        if isinstance(claim, str) and claim not in created:
            yield f"{path}.volumes[{index}].persistentVolumeClaim: every VM uses the same claim"
