"""What is wrong with a pool though its schema is right: names, references and duplicates."""

from __future__ import annotations

from collections.abc import Iterator

from apimachinery.problem import Problem
from apimachinery.unstructured import Json, at, entries, replaced, typed
from kinds.checks.metadata import booleans_as_text, effective_name, is_label, selector_problems
from kinds.checks.vm_template import template_label_problems, vm_problems, vm_warnings
from kinds.model import Rule

LONGEST_NAME = 63
MOST_REPLICAS = 2**31 - 1
_STRATEGIES = (("scaleInStrategy", "proactive"), ("updateStrategy", "proactive"))


def _names_fit(document: object) -> bool:
    name, replicas = effective_name(document), typed(int, document, "spec", "replicas")
    if name is None:
        return True
    ordinal = min(max(replicas or 0, 1), MOST_REPLICAS)
    return is_label(name) and len(f"{name}-{ordinal}") <= LONGEST_NAME


NAMES_ARE_LABELS = Rule(
    cel="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && "
    "self.metadata.name.size() + 1 + string(self.spec.replicas).size() <= 63",
    message="a pool's VMs are called NAME-1, NAME-2, ... and these are host names: the name must have no dots, and with"
    " '-' and the highest number it must have at most 63 characters",
    holds=_names_fit,
    field=".metadata.name",
)


def selectors(document: Json) -> Iterator[Problem]:
    for path in _STRATEGIES:
        for index, policy in entries(document, "spec", *path, "selectionPolicy", "orderedPolicies"):
            here = f"spec.{'.'.join(path)}.selectionPolicy.orderedPolicies[{index}].labelSelector"
            yield from selector_problems(policy.get("labelSelector"), here)


def template(document: Json) -> Iterator[Problem]:
    yield from template_label_problems(
        at(document, "spec", "template", "metadata", "labels"), "spec.template.metadata.labels"
    )
    yield from vm_problems(at(document, "spec", "template", "spec"), "spec.template.spec")


def identical_machines(document: Json) -> Iterator[str]:
    if at(document, "spec", "template", "metadata", "name") is not None:
        yield "spec.template.metadata.name is not used: VMs are named after the pool"
    yield from vm_warnings(at(document, "spec", "template", "spec"), "spec.template.spec")


def nothing_to_preserve(document: Json) -> Iterator[str]:
    if any(entries(document, "spec", "template", "spec", "dataVolumeTemplates")):
        return
    for strategy in ("opportunistic", "proactive"):
        if at(document, "spec", "scaleInStrategy", strategy, "statePreservation") == "Offline":
            yield (
                f"spec.scaleInStrategy.{strategy}.statePreservation: Offline keeps disks of dataVolumeTemplates, "
                "and the template has none"
            )


def normalize(document: Json) -> Json:
    """Label values that YAML took for booleans become the text they were meant to be."""
    for path in _STRATEGIES:
        policies = ("spec", *path, "selectionPolicy", "orderedPolicies")
        for index, policy in entries(document, *policies):
            matches = at(policy, "labelSelector", "matchLabels")
            texts = booleans_as_text(matches)
            if texts is not matches:
                document = replaced(document, texts, *policies, index, "labelSelector", "matchLabels")
    return document


CHECKS = (selectors, template)
WARNINGS = (identical_machines, nothing_to_preserve)
