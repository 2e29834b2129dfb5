"""VirtualMachineInstanceReplicaSet: a number of similar VMIs without their own state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from apimachinery.problem import Problem
from apimachinery.unstructured import Json, at, entries, replaced
from kinds.checks.metadata import booleans_as_text, is_label, selector_problems
from kinds.checks.vm_template import template_label_problems, vmi_problems
from kinds.kind import AGE, VMIS, Column, Kind, Scale, Template
from kinds.metav1 import Conditions, LabelSelector
from kinds.model import Count, Int64, Model, SchemaOf, expected
from kinds.validation import quoted
from kinds.virtualmachine import VMITemplate


class ReplicaSetSpec(Model):
    """Desired state of the replica set."""

    replicas: Count = 1
    """Desired number of VirtualMachineInstances."""
    selector: LabelSelector
    """Selects the VirtualMachineInstances of the replica set. Must match the template's labels, and no VMIs of another
    replica set."""
    paused: bool = False
    """While true, the controller creates and deletes no VMIs. It still reports their status."""
    template: Annotated[
        Json,
        SchemaOf(VMITemplate),
        Field(json_schema_extra=expected("an object with the metadata and the spec of a VirtualMachineInstance")),
    ]
    """Template of the VirtualMachineInstances."""


class ReplicaSetStatus(Model):
    """Observed state of the replica set."""

    observed_generation: Annotated[Int64, Field(ge=0)] | None = None
    """Generation of the spec that this status describes."""
    replicas: Count = 0
    """VirtualMachineInstances that have not ended and are not being deleted."""
    ready_replicas: Count = 0
    """VirtualMachineInstances that are ready."""
    terminating_replicas: Count = 0
    """VirtualMachineInstances that are being deleted."""
    label_selector: str = ""
    """The selector, as text for autoscalers."""
    conditions: Conditions = ()
    """Conditions of the replica set: ReplicaFailure, while VirtualMachineInstances cannot be created or deleted, and
    ReplicaPaused."""


def selection(document: Json) -> Iterator[Problem]:
    """The selector must select something, and must match the labels of the template."""
    wanted, path = at(document, "spec", "selector"), "spec.selector"
    if not isinstance(wanted, dict):
        return
    yield from selector_problems(wanted, path)
    if not wanted.get("matchLabels") and not wanted.get("matchExpressions"):
        yield Problem(path, "selects everything; give labels that only the template has")
        return
    given = at(document, "spec", "template", "metadata", "labels")
    given = given if isinstance(given, dict) else {}
    matches = at(wanted, "matchLabels")
    for key, value in matches.items() if isinstance(matches, dict) else ():
        if isinstance(key, str) and isinstance(value, str) and given.get(key) != value:
            yield _unmatched(f"{path}.matchLabels", f"{quoted(key)} is {quoted(value)}", given.get(key))
    for index, expression in entries(wanted, "matchExpressions"):
        key = expression.get("key")
        if isinstance(key, str) and not _holds(expression, given, key):
            told = f"{quoted(key)} is as the selector wants it"
            yield _unmatched(f"{path}.matchExpressions[{index}]", told, given.get(key))


def _holds(expression: Json, given: Json, key: str) -> bool:
    values = expression.get("values")
    listed = isinstance(values, list) and given.get(key) in values
    match expression.get("operator"):
        case "In":
            return key in given and listed
        case "NotIn":
            return not listed
        case "Exists":
            return key in given
        case "DoesNotExist":
            return key not in given
        case _:
            return True  # the schema reports it


def _unmatched(path: str, wanted: str, given: object) -> Problem:
    there = "does not have that label" if given is None else f"has {quoted(given)}"
    return Problem(path, f"does not match spec.template.metadata.labels: {wanted}, and the template {there}")


def template(document: Json) -> Iterator[Problem]:
    path = "spec.template"
    for field in ("name", "generateName"):
        name = at(document, "spec", "template", "metadata", field)
        if isinstance(name, str) and name and not is_label(name.rstrip("-") if field == "generateName" else name):
            told = f"must be lower case letters, digits and '-', not {quoted(name)}: instances are named after it"
            yield Problem(f"{path}.metadata.{field}", told)
    yield from template_label_problems(
        at(document, "spec", "template", "metadata", "labels"), f"{path}.metadata.labels"
    )
    yield from vmi_problems(at(document, "spec", "template", "spec"), f"{path}.spec")


def normalize(document: Json) -> Json:
    """Label values that YAML took for booleans become the text they were meant to be, in selector and template."""
    for path in (("spec", "selector", "matchLabels"), ("spec", "template", "metadata", "labels")):
        found = at(document, *path)
        texts = booleans_as_text(found)
        if texts is not found:
            document = replaced(document, texts, *path)
    return document


REPLICA_SET = Kind(
    group="kubevirt.io",
    versions=("v1", "v1alpha2"),
    kind="VirtualMachineInstanceReplicaSet",
    plural="virtualmachineinstancereplicasets",
    short_names=("vmirs", "vmirss"),
    categories=("poolhouse", "all"),
    doc="A number of similar VirtualMachineInstances without their own state.",
    notes="KubeVirt has the same resource. Where KubeVirt has installed it, Poolhouse does not install or control it.",
    yields_to_kubevirt=True,
    spec=ReplicaSetSpec,
    status=ReplicaSetStatus,
    scale=Scale(),
    columns=(
        Column("Desired", ".spec.replicas", "Desired number of VirtualMachineInstances", "integer"),
        Column("Current", ".status.replicas", "VirtualMachineInstances of the replica set", "integer"),
        Column("Ready", ".status.readyReplicas", "VirtualMachineInstances that are ready", "integer"),
        AGE,
        Column("Paused", ".spec.paused", "Whether the replica set is paused", "boolean", wide=True),
        Column("Selector", ".status.labelSelector", "Selector of the VirtualMachineInstances", wide=True),
    ),
    templates=(Template(("spec", "template"), VMIS),),
    plan_path="/apis/replicasets/plan",
    checks=(selection, template),
    normalizer=normalize,
)
