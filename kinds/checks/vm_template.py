"""Checks of templates from which many VMs are created: dangling references, duplicate names, shared identities."""

from collections.abc import Iterator
from typing import Any

from apimachinery.problem import Problem
from apimachinery.unstructured import Json, at, entries
from kinds import meta
from kinds.checks.metadata import is_subdomain, label_problems
from kinds.validation import child_path, quoted

_CONTROLLER_LABELS = (meta.POOL, meta.WARM_POOL, meta.REVISION, meta.ORDINAL, *meta.PROTECTED_LABELS)
_LONGEST_POSTFIX = "-2147483647"


def template_problems(document: Json) -> Iterator[Problem]:
    """Checks `spec.template`, the template of a VirtualMachine."""
    path = "spec.template"
    yield from template_label_problems(
        at(document, "spec", "template", "metadata", "labels"), f"{path}.metadata.labels"
    )
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
    yield from template_label_problems(at(spec, "template", "metadata", "labels"), f"{inner}.metadata.labels")
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


def template_label_problems(value: Any, path: str) -> Iterator[Problem]:
    yield from label_problems(value, path)
    for key in _CONTROLLER_LABELS:
        if at(value, key) is not None:
            yield Problem(child_path(path, key), "is written by Poolhouse itself; leave it out of the template")


def vmi_problems(spec: Any, path: str) -> Iterator[Problem]:
    """Checks the spec of a VirtualMachineInstance."""
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


def template_warnings(document: Json) -> Iterator[str]:
    """Warnings about fields of `spec.template` without effect, and about shared values that must differ between VMs."""
    spec = at(document, "spec", "template", "spec")
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
