"""Checks of a VirtualMachineInstanceReplicaSet that its schema cannot express."""

from collections.abc import Iterator

from poolhouse.api.apimachinery.label_selectors import matches
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed
from poolhouse.api.kinds.checks.metadata import booleans_to_text, is_label, selector_problems
from poolhouse.api.kinds.checks.vm_template import (
    template_metadata_problems,
    unknown_field_warnings,
    unused_metadata,
    vmi_problems,
)
from poolhouse.api.kinds.validation import quoted
from poolhouse.api.kubevirt.fields import VMI_SPEC


def selector(document: Json) -> Iterator[Problem]:
    """The selector must select something, and must match the labels of the template."""
    wanted, path = at(document, "spec", "selector"), "spec.selector"
    if not isinstance(wanted, dict):
        return
    yield from selector_problems(wanted, path)
    if not wanted.get("matchLabels") and not wanted.get("matchExpressions"):
        yield Problem(path, "selects everything; give labels that only the template has")
        return
    labels = at(document, "spec", "template", "metadata", "labels")
    labels = labels if isinstance(labels, dict) else {}
    pairs = at(wanted, "matchLabels")
    for key, value in pairs.items() if isinstance(pairs, dict) else ():
        if isinstance(key, str) and isinstance(value, str) and labels.get(key) != value:
            yield _mismatch(f"{path}.matchLabels", f"{quoted(key)} is {quoted(value)}", labels.get(key))
    for index, expression in entries(wanted, "matchExpressions"):
        key = expression.get("key")
        if isinstance(key, str) and not _is_met(expression, labels):
            expected = f"{quoted(key)} is as the selector wants it"
            yield _mismatch(f"{path}.matchExpressions[{index}]", expected, labels.get(key))


def _is_met(expression: Json, labels: Json) -> bool:
    if expression.get("operator") not in ("In", "NotIn", "Exists", "DoesNotExist"):
        return True  # the schema reports it
    values = expression.get("values")
    return matches({"matchExpressions": [{**expression, "values": values if isinstance(values, list) else []}]}, labels)


def _mismatch(path: str, expected: str, label: object) -> Problem:
    found = "does not have that label" if label is None else f"has {quoted(label)}"
    return Problem(path, f"does not match spec.template.metadata.labels: {expected}, and the template {found}")


def template(document: Json) -> Iterator[Problem]:
    path = "spec.template"
    for field in ("name", "generateName"):
        name = at(document, "spec", "template", "metadata", field)
        if isinstance(name, str) and name and not is_label(name.rstrip("-") if field == "generateName" else name):
            message = f"must be lower case letters, digits and '-', not {quoted(name)}: VMIs are named after it"
            yield Problem(f"{path}.metadata.{field}", message)
    yield from template_metadata_problems(document, ("spec", "template"))
    yield from vmi_problems(at(document, "spec", "template", "spec"), f"{path}.spec")


def normalize(document: Json) -> Json:
    document = booleans_to_text(document, "spec", "selector", "matchLabels")
    return booleans_to_text(document, "spec", "template", "metadata", "labels")


def template_warnings(document: Json) -> Iterator[str]:
    yield from unknown_field_warnings(at(document, "spec", "template", "spec"), VMI_SPEC)
    yield from unused_metadata(document)


def shared_claims(document: Json) -> Iterator[str]:
    """Warnings about claims to which several VMIs would write."""
    spec = at(document, "spec", "template", "spec")
    disks = {typed(str, disk, "name"): disk for _, disk in entries(spec, "domain", "devices", "disks")}
    for index, volume in entries(spec, "volumes"):
        for source in ("persistentVolumeClaim", "dataVolume"):
            claim = at(volume, source)
            if claim is None or at(claim, "readOnly") or not _is_writable(disks.get(typed(str, volume, "name"))):
                continue
            yield (
                f"spec.template.spec.volumes[{index}].{source}: all VMIs write to the same claim, which damages its"
                " content; use ephemeral.persistentVolumeClaim or a containerDisk, or a VirtualMachinePool, whose VMs"
                " have disks of their own"
            )


def _is_writable(disk: Json | None) -> bool:
    """Whether the guest can write to the disk, and its author does not share it with other guests knowingly. Without a
    disk, the guest shares the claim's file system, as far as it has it."""
    if disk is None or disk.get("shareable") is True:
        return False
    cdrom = at(disk, "cdrom")
    if cdrom is not None:
        return at(cdrom, "readonly") is False
    return not any(at(disk, kind, "readonly") is True for kind in ("disk", "lun"))


CHECKS = (selector, template)
WARNINGS = (template_warnings, shared_claims)
