"""What is wrong with a migration policy though its schema is right: names, labels, and other policies in its way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apimachinery.problem import Problem
from apimachinery.quantity import MOST, to_int
from apimachinery.unstructured import Json, at, replaced
from kinds.meta import MIGRATION_POLICY
from kinds.model import Rule
from kinds.names import booleans_as_text, is_label_value, name_of, selector
from kinds.precedence import Contender, Selectors, reason, superseded
from kinds.shape import joined, shown

LONGEST_NAME = 63
INSTANCE, NAMESPACE = "virtualMachineInstanceSelector", "namespaceSelector"
MEBIBYTE = 1 << 20
TIES_TOLD = 5
"""warnings about ties with others; an API server passes on only so many"""


def _name_fits(document: object) -> bool:
    name = name_of(document)
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
                told = f'; write it in quotes, "{shown(value)}"' if isinstance(value, int | float) else ""
                yield Problem(joined(f"{path}.matchLabels", key), f"must be text, not {shown(value)}{told}")
        yield from selector(given, path)
        if at(matches, MIGRATION_POLICY) is not None:
            yield Problem(
                joined(f"{path}.matchLabels", MIGRATION_POLICY),
                "is how Poolhouse writes down what was decided, so nothing can be decided by it; use another label",
            )


def bandwidth(document: Json) -> Iterator[Problem]:
    bytes_a_second = to_int(value := at(document, "spec", "bandwidthPerMigration"))
    if bytes_a_second is not None and bytes_a_second > MOST:
        yield Problem("spec.bandwidthPerMigration", f"must be less than 8Ei, not {shown(value)}")


def nameless(document: Any) -> Iterator[Problem]:
    """Of a policy that is only supposed: the API server would make a name of generateName, and here nobody does."""
    name = at(document, "metadata", "name")
    if at(document, "metadata", "generateName") and not (isinstance(name, str) and name):
        yield Problem("metadata.name", "is missing; generateName is not enough here, give the policy a name")


def for_nobody(document: Json) -> Iterator[str]:
    if not contender(document).selectors:
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


def normal(document: Json) -> Json:
    """Label values that YAML took for booleans become the text they were meant to be."""
    for which in (NAMESPACE, INSTANCE):
        path = ("spec", "selectors", which, "matchLabels")
        matches = at(document, *path)
        texts = booleans_as_text(matches)
        if texts is not matches:
            document = replaced(document, texts, *path)
    return document


def contender(document: Any) -> Contender:
    """The policy as far as precedence goes, of any document; what is no label in it is left out."""
    name, created = at(document, "metadata", "name"), at(document, "metadata", "creationTimestamp")
    return Contender(
        name if isinstance(name, str) else "",
        Selectors.of(_wanted(document, INSTANCE), _wanted(document, NAMESPACE)),
        created if isinstance(created, str) else "",
    )


def _wanted(document: Any, which: str) -> dict[str, str]:
    matches = booleans_as_text(at(document, "spec", "selectors", which, "matchLabels"))
    pairs = matches.items() if isinstance(matches, dict) else ()
    return {key: value for key, value in pairs if isinstance(key, str) and isinstance(value, str)}


def rivals(policy: Contender, others: Iterable[Contender]) -> Iterator[Problem]:
    """Another policy that has the same selectors already. `policy` itself may be among the others, as it is stored."""
    elders = [other for other in others if other.name != policy.name]
    lost = superseded([*elders, Contender(policy.name, policy.selectors)]).get(policy.name)
    if lost is not None:
        yield Problem(
            "spec.selectors",
            f"are exactly those of policy {shown(lost)}; a VM could not tell which of the two to obey: "
            "change that one, or choose other labels",
        )


def ties(policy: Contender, others: Iterable[Contender]) -> Iterator[str]:
    """Overlaps in which only the tie-break decides."""
    found = [
        other
        for other in sorted(others, key=lambda each: each.rank)
        if other.name != policy.name
        and len(other.selectors) == len(policy.selectors)
        and other.selectors.overlap(policy.selectors)
    ]
    for other in found[:TIES_TOLD]:
        first, second = sorted((policy, other), key=lambda each: each.rank)
        yield (
            f"spec.selectors: overlap with those of policy {shown(other.name)}; VMs that match both obey "
            f"{shown(first.name)}: {reason(first, second)}"
        )
    if len(found) > TIES_TOLD:
        yield f"spec.selectors: {len(found) - TIES_TOLD} more policies overlap in the same way"


CHECKS = (labels, bandwidth)
CAUTIONS = (for_nobody, disables_tls, crawls)
