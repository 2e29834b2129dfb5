"""Checks of a MigrationPolicy that its schema cannot express."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.quantity import MAX_INT64, to_fraction, to_int
from poolhouse.api.apimachinery.timestamps import YEARS, known_time, parse_time
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.checks.metadata import booleans_to_text, name_rule, not_text, selector_problems
from poolhouse.api.kinds.meta import MIGRATION_POLICY
from poolhouse.api.kinds.validation import child_path, quoted

INSTANCE, NAMESPACE = "virtualMachineInstanceSelector", "namespaceSelector"
_MEBIBYTE = 1 << 20
CLUSTER_WIDE = (
    "matchSELinuxLevelOnMigration",
    "network",
    "nodeDrainTaintKey",
    "parallelMigrationsPerCluster",
    "parallelOutboundMigrationsPerNode",
    "progressTimeout",
    "unsafeMigrationOverride",
    "utilityVolumesTimeout",
)
"""settings of KubeVirt's MigrationConfiguration that its migration policies do not have; `disableTLS` is one too"""


NAME_RULE = name_rule(63, "the name becomes a label's value on the VMIs of the policy: at most 63 characters")


def labels(document: Json) -> Iterator[Problem]:
    for which in (NAMESPACE, INSTANCE):
        path = f"spec.selectors.{which}"
        given = at(document, "spec", "selectors", which)
        matches = at(given, "matchLabels")
        for key, value in matches.items() if isinstance(matches, dict) else ():
            if value is not None and not isinstance(value, str | bool):
                yield Problem(child_path(f"{path}.matchLabels", key), not_text(value))
        yield from selector_problems(given, path)
        if at(matches, MIGRATION_POLICY) is not None:
            yield Problem(
                child_path(f"{path}.matchLabels", MIGRATION_POLICY),
                "is the label in which Poolhouse writes down the winning policy, so no policy can select by it; "
                "use another label",
            )


def bandwidth(document: Json) -> Iterator[Problem]:
    bytes_a_second = to_int(value := at(document, "spec", "bandwidthPerMigration"))
    if bytes_a_second is not None and bytes_a_second > MAX_INT64:
        yield Problem("spec.bandwidthPerMigration", f"must be less than 8Ei, not {quoted(value)}")


_FACTORS: dict[str, tuple[Callable[[Fraction], bool], str]] = {
    "ewmaAlpha": (lambda factor: 0 < factor <= 1, "must be greater than 0 and at most 1"),
    "precopyPossibleFactor": (lambda factor: factor >= 1, "must be at least 1"),
    "patienceWindowDecayFactor": (lambda factor: factor <= 1, "must be at most 1"),
    "completionTimeoutFactor": (lambda factor: factor >= 1, "must be at least 1"),
}


def experiments(document: Json) -> Iterator[Problem]:
    given = at(document, "spec", "experimental")
    detector = at(given, "stallDetector")
    if detector is not None and at(given, "downtimeTuning") is not None:
        yield Problem(
            "spec.experimental", "has stallDetector and downtimeTuning, which exclude each other: remove one of them"
        )
    for name, (valid, bounds) in _FACTORS.items():
        factor = to_fraction(value := at(detector, name))
        if factor is not None and not valid(factor):
            yield Problem(f"spec.experimental.stallDetector.{name}", f"{bounds}, not {quoted(value)}")


def expiry(document: Json) -> Iterator[Problem]:
    given = at(document, "spec", "expiresAt")
    if not isinstance(given, str) or known_time(given) is not None:
        return
    try:
        year = parse_time(given).year
    except ValueError:
        wanted = 'must be a time with its zone, such as "2026-12-01T06:00:00Z"'
        yield Problem("spec.expiresAt", f"{wanted}, not {quoted(given)}")
    else:
        bounds = f"must be in a year from {YEARS[0]} to {YEARS[-1]}, not {year}"
        yield Problem("spec.expiresAt", f"{bounds}; for a policy that never expires, leave expiresAt out")


def match_labels(document: Any, selector: str) -> dict[str, str]:
    """The valid labels of `namespaceSelector` or `virtualMachineInstanceSelector`."""
    matches = at(normalize(document), "spec", "selectors", selector, "matchLabels")
    pairs = matches.items() if isinstance(matches, dict) else ()
    return {key: value for key, value in pairs if isinstance(key, str) and isinstance(value, str)}


def matches_nothing(document: Json) -> Iterator[str]:
    if not any(match_labels(document, which) for which in (NAMESPACE, INSTANCE)):
        yield "spec.selectors: has no label in either selector, so the policy matches no VM"


def tls_is_cluster_wide(document: Json) -> Iterator[str]:
    if at(document, "spec", "disableTLS") is True:
        yield (
            "spec.disableTLS: KubeVirt can disable TLS only for the whole cluster; unless its configuration does so, "
            "this setting is not enforced, and the condition Enforced is False"
        )


def rounded_bandwidth(document: Json) -> Iterator[str]:
    bytes_a_second = to_int(value := at(document, "spec", "bandwidthPerMigration"))
    if bytes_a_second is not None and 0 < bytes_a_second < _MEBIBYTE:
        yield (f"spec.bandwidthPerMigration: {value} a second becomes 1Mi: KubeVirt rounds to whole MiB")


def normalize(document: Json) -> Json:
    for selector in (NAMESPACE, INSTANCE):
        document = booleans_to_text(document, "spec", "selectors", selector, "matchLabels")
    return document


CHECKS = (labels, bandwidth, experiments, expiry)
WARNINGS = (matches_nothing, tls_is_cluster_wide, rounded_bandwidth)
