"""Finds conflicts of a MigrationPolicy with others: equal selectors, and overlaps that only the tie-break decides."""

from collections.abc import Iterable, Iterator
from typing import Any

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.validation import quoted
from poolhouse.api.migrationpolicies.precedence import RankedPolicy, reason, superseded

MAX_OVERLAP_WARNINGS = 5
"""Limit on warnings, because the API server limits their total length."""


def conflicts(policy: RankedPolicy, others: Iterable[RankedPolicy]) -> Iterator[Problem]:
    """A problem if an older policy has the same selectors. `others` may include the stored version of `policy`."""
    elders = [other for other in others if other.name != policy.name]
    lost = superseded([*elders, RankedPolicy(policy.name, policy.selectors)]).get(policy.name)
    if lost is not None:
        yield Problem(
            "spec.selectors",
            f"are exactly those of policy {quoted(lost)}, so this one would match nothing: change that one, or choose "
            "other labels",
        )


def overlaps(policy: RankedPolicy, others: Iterable[RankedPolicy]) -> Iterator[str]:
    """Warnings about policies with the same number of labels that can match the same VMIs."""
    found = [
        other
        for other in sorted(others, key=lambda each: each.rank)
        if other.name != policy.name
        and len(other.selectors) == len(policy.selectors)
        and other.selectors.overlaps(policy.selectors)
    ]
    for other in found[:MAX_OVERLAP_WARNINGS]:
        first, second = sorted((policy, other), key=lambda each: each.rank)
        yield (
            f"spec.selectors: overlap with those of policy {quoted(other.name)}; VMIs that match both get "
            f"{quoted(first.name)}: {reason(first, second)}"
        )
    if len(found) > MAX_OVERLAP_WARNINGS:
        yield f"spec.selectors: {len(found) - MAX_OVERLAP_WARNINGS} more policies overlap in the same way"


def missing_name(document: Any) -> Iterator[Problem]:
    """A problem if a hypothetical policy has no name. Only the API server can generate a name from generateName."""
    name = at(document, "metadata", "name")
    if at(document, "metadata", "generateName") and not (isinstance(name, str) and name):
        yield Problem("metadata.name", "is missing; generateName is not enough here, give the policy a name")
