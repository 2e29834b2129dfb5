"""What is wrong with a template that many VMs are made from: references to nothing, and names given twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apimachinery.problem import Problem
from apimachinery.unstructured import at, entries
from kinds import meta
from kinds.checks.metadata import is_subdomain, label_problems
from kinds.validation import child_path, quoted

_OURS = (meta.POOL, meta.WARM_POOL, meta.REVISION, meta.ORDINAL, *meta.PROTECTED_LABELS)
LONGEST_POSTFIX = "-2147483647"


def vm_problems(spec: Any, path: str) -> Iterator[Problem]:
    """Of a VirtualMachine's spec."""
    yield from _twice(spec, ("dataVolumeTemplates",), path, "metadata", "name")
    made = _names(spec, ("dataVolumeTemplates",), "metadata", "name")
    for index, template in entries(spec, "dataVolumeTemplates"):
        name = at(template, "metadata", "name")
        if isinstance(name, str) and not is_subdomain(name + LONGEST_POSTFIX):
            yield Problem(
                f"{path}.dataVolumeTemplates[{index}].metadata.name",
                f"must be lower case letters, digits, '-' and '.', not {quoted(name)}",
            )
    inner = f"{path}.template"
    yield from template_label_problems(at(spec, "template", "metadata", "labels"), f"{inner}.metadata.labels")
    instance = at(spec, "template", "spec")
    for index, volume in entries(instance, "volumes"):
        name = at(volume, "dataVolume", "name")
        if isinstance(name, str) and name not in made:
            yield Problem(
                f"{inner}.spec.volumes[{index}].dataVolume.name",
                f"there is no dataVolumeTemplate {quoted(name)}; add it, or use persistentVolumeClaim to give all VMs "
                "the same existing disk",
            )
    yield from vmi_problems(instance, f"{inner}.spec")


def template_label_problems(value: Any, path: str) -> Iterator[Problem]:
    """Of labels in a template: right, and none of those by which we know a VM."""
    yield from label_problems(value, path)
    for key in _OURS:
        if at(value, key) is not None:
            yield Problem(child_path(path, key), "is written by Poolhouse itself; leave it out of the template")


def vmi_problems(spec: Any, path: str) -> Iterator[Problem]:
    """Of a VirtualMachineInstance's spec."""
    disks, interfaces = ("domain", "devices", "disks"), ("domain", "devices", "interfaces")
    for lists in (disks, interfaces, ("volumes",), ("networks",)):
        yield from _twice(spec, lists, path, "name")
    yield from _dangling(spec, disks, ("volumes",), path, "volume", "add it to spec.volumes, or remove the disk")
    yield from _dangling(
        spec, interfaces, ("networks",), path, "network", "add it to networks, or remove the interface"
    )
    yield from _dangling(
        spec, ("networks",), interfaces, path, "interface", "add it to interfaces, or remove the network"
    )


def _names(spec: Any, lists: tuple[str, ...], *name: str) -> set[str]:
    found = (at(item, *name) for _, item in entries(spec, *lists))
    return {value for value in found if isinstance(value, str)}


def _twice(spec: Any, lists: tuple[str, ...], path: str, *name: str) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, item in entries(spec, *lists):
        value = at(item, *name)
        if isinstance(value, str) and first.setdefault(value, index) != index:
            where = f"{path}.{'.'.join(lists)}"
            yield Problem(
                f"{where}[{index}].{'.'.join(name)}",
                f"{quoted(value)} is taken by {where}[{first[value]}]; each must be different",
            )


def _dangling(
    spec: Any, users: tuple[str, ...], used: tuple[str, ...], path: str, noun: str, remedy: str
) -> Iterator[Problem]:
    there = _names(spec, used, "name")
    for index, item in entries(spec, *users):
        name = item.get("name")
        if isinstance(name, str) and name not in there:
            yield Problem(f"{path}.{'.'.join(users)}[{index}].name", f"there is no {noun} {quoted(name)}; {remedy}")


def vm_warnings(spec: Any, path: str) -> Iterator[str]:
    """What every VM of a template would have in common, though it should be each one's own."""
    instance, here = at(spec, "template", "spec"), f"{path}.template.spec"
    for index, interface in entries(instance, "domain", "devices", "interfaces"):
        if interface.get("macAddress"):
            yield f"{here}.domain.devices.interfaces[{index}].macAddress: every VM gets the same MAC address"
    for field in ("uuid", "serial"):
        if at(instance, "domain", "firmware", field):
            yield f"{here}.domain.firmware.{field}: every VM gets the same firmware {field}"
    made = _names(spec, ("dataVolumeTemplates",), "metadata", "name")
    for index, volume in entries(instance, "volumes"):
        claim = at(volume, "persistentVolumeClaim", "claimName")
        if isinstance(claim, str) and claim not in made:
            yield f"{here}.volumes[{index}].persistentVolumeClaim: every VM uses the same claim"
