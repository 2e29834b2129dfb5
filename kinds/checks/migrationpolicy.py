"""What is wrong with a migration policy though its schema is right: names, labels, and other policies in its way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apimachinery.problem import Problem
from apimachinery.quantity import MAX_INT64, to_int
from apimachinery.unstructured import Json, at, replaced
from kinds.checks.metadata import booleans_as_text, effective_name, is_label_value, selector_problems
from kinds.meta import MIGRATION_POLICY
from kinds.model import Rule
from kinds.validation import child_path, quoted

LONGEST_NAME = 63
INSTANCE, NAMESPACE = "virtualMachineInstanceSelector", "namespaceSelector"
MEBIBYTE = 1 << 20


def _name_fits(document: object) -> bool:
    name = effective_name(document)
    return name is None or (len(name) <= LONGEST_NAME and is_label_value(name))


NAME_IS_A_LABEL = Rule(
    cel=f"self.metadata.name.size() <= {LONGEST_NAME}",
    message=f"the name becomes a label's value on each VM that obeys the policy: at most {LONGEST_NAME} characters",
    holds=_name_fits,
    field=".metadata.name",
)


def labels(document: Json) -> Iterator[Problem]:
    for which in (NAMESPACE, INSTANCE):
        path = f"spec.selectors.{which}"
        given = at(document, "spec", "selectors", which)
        matches = at(given, "matchLabels")
        for key, value in matches.items() if isinstance(matches, dict) else ():
            if value is not None and not isinstance(value, str | bool):
                told = f'; write it in quotes, "{quoted(value)}"' if isinstance(value, int | float) else ""
                yield Problem(child_path(f"{path}.matchLabels", key), f"must be text, not {quoted(value)}{told}")
        yield from selector_problems(given, path)
        if at(matches, MIGRATION_POLICY) is not None:
            yield Problem(
                child_path(f"{path}.matchLabels", MIGRATION_POLICY),
                "is how Poolhouse writes down what was decided, so nothing can be decided by it; use another label",
            )


def bandwidth(document: Json) -> Iterator[Problem]:
    bytes_a_second = to_int(value := at(document, "spec", "bandwidthPerMigration"))
    if bytes_a_second is not None and bytes_a_second > MAX_INT64:
        yield Problem("spec.bandwidthPerMigration", f"must be less than 8Ei, not {quoted(value)}")


def match_labels(document: Any, which: str) -> dict[str, str]:
    matches = booleans_as_text(at(document, "spec", "selectors", which, "matchLabels"))
    pairs = matches.items() if isinstance(matches, dict) else ()
    return {key: value for key, value in pairs if isinstance(key, str) and isinstance(value, str)}


def for_nobody(document: Json) -> Iterator[str]:
    if not any(match_labels(document, which) for which in (NAMESPACE, INSTANCE)):
        yield "spec.selectors: has no label in either selector, so the policy matches no VM"


def disables_tls(document: Json) -> Iterator[str]:
    if at(document, "spec", "disableTLS") is True:
        yield (
            "spec.disableTLS: KubeVirt can disable TLS for the whole cluster only; unless its own configuration does, "
            "this policy is not enforced in that respect, and says so in its condition Enforced"
        )


def crawls(document: Json) -> Iterator[str]:
    bytes_a_second = to_int(value := at(document, "spec", "bandwidthPerMigration"))
    if bytes_a_second is not None and 0 < bytes_a_second < MEBIBYTE:
        yield (
            f"spec.bandwidthPerMigration: {value} a second becomes 1Mi, the least that KubeVirt can do: "
            "it counts in whole MiB"
        )


def normalize(document: Json) -> Json:
    """Label values that YAML took for booleans become the text they were meant to be."""
    for which in (NAMESPACE, INSTANCE):
        path = ("spec", "selectors", which, "matchLabels")
        matches = at(document, *path)
        texts = booleans_as_text(matches)
        if texts is not matches:
            document = replaced(document, texts, *path)
    return document


CHECKS = (labels, bandwidth)
WARNINGS = (for_nobody, disables_tls, crawls)
