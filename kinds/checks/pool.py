"""Checks of a VirtualMachinePool that its schema cannot express."""

from collections.abc import Iterator

from apimachinery.problem import Problem
from apimachinery.unstructured import Json, at, entries, typed
from kinds.checks.metadata import booleans_to_text, effective_name, is_label, selector_problems
from kinds.checks.vm_template import template_problems, template_warnings
from kinds.model import Rule

_MAX_NAME_LENGTH = 63
_MAX_REPLICAS = 2**31 - 1
_STRATEGIES = (("scaleInStrategy", "proactive"), ("updateStrategy", "proactive"))


def _vm_names_are_labels(document: object) -> bool:
    name, replicas = effective_name(document), typed(int, document, "spec", "replicas")
    if name is None:
        return True
    ordinal = min(max(replicas or 0, 1), _MAX_REPLICAS)
    return is_label(name) and len(f"{name}-{ordinal}") <= _MAX_NAME_LENGTH


NAME_RULE = Rule(
    cel="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && "
    "self.metadata.name.size() + 1 + string(self.spec.replicas).size() <= 63",
    message="a pool's VMs are called NAME-1, NAME-2, ... and these are host names: the name must have no dots, and with"
    " '-' and the highest number it must have at most 63 characters",
    holds=_vm_names_are_labels,
    field=".metadata.name",
)


def _policies(document: Json) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    for strategy in _STRATEGIES:
        path = ("spec", *strategy, "selectionPolicy", "orderedPolicies")
        for index, policy in entries(document, *path):
            yield (*path, index), policy


def ordered_policies(document: Json) -> Iterator[Problem]:
    for (*path, index), policy in _policies(document):
        yield from selector_problems(policy.get("labelSelector"), f"{'.'.join(map(str, path))}[{index}].labelSelector")


def disks_to_preserve(document: Json) -> Iterator[str]:
    if any(entries(document, "spec", "template", "spec", "dataVolumeTemplates")):
        return
    for strategy in ("opportunistic", "proactive"):
        if at(document, "spec", "scaleInStrategy", strategy, "statePreservation") == "Offline":
            yield (
                f"spec.scaleInStrategy.{strategy}.statePreservation: Offline keeps disks of dataVolumeTemplates, "
                "and the template has none"
            )


def normalize(document: Json) -> Json:
    for path, _ in _policies(document):
        document = booleans_to_text(document, *path, "labelSelector", "matchLabels")
    return document


CHECKS = (ordered_policies, template_problems)
WARNINGS = (template_warnings, disks_to_preserve)
