"""The threat model in docs/reference/rights.md has exactly the rights that the chart renders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.charts.helm import CHART, NAMESPACE, template

Json = dict[str, Any]
Right = tuple[str, str, str, frozenset[str]]
"""service, scope, resource and names of objects"""
FEATURES = {
    "agentCertificates": {"enabled": True, "namespaces": ["listed"]},
    "analysis": {"jobs": True},
    "readDomains": {"enabled": True, "namespaces": ["listed"]},
    "virtualNode": {"enabled": True},
}

PAGE = CHART.parent.parent / "docs" / "reference" / "rights.md"
SCOPES = {"ClusterRole": "cluster", "Role": "own"}
EVERYTHING = ("--values", str(CHART / "ci" / "everything-values.yaml"))


def rendered() -> dict[Right, set[str]]:
    """The verbs of each right, with all features."""
    found: dict[Right, set[str]] = {}
    for document in (*template(None, *EVERYTHING), *template({"controllers": FEATURES})):
        scope = SCOPES.get(document["kind"])
        if scope == "own" and document["metadata"]["namespace"] != NAMESPACE:
            scope = document["metadata"]["namespace"]
        for rule in document.get("rules") or () if scope else ():
            for resource in rule["resources"]:
                (group,) = rule["apiGroups"]
                service = document["metadata"]["name"].removeprefix("poolhouse-")
                name = f"{resource}.{group}" if group else resource
                right = (service, str(scope), name, frozenset(rule.get("resourceNames", ())))
                found.setdefault(right, set()).update(rule["verbs"])
    return found


def rows() -> Iterator[list[str]]:
    lines = PAGE.read_text().partition("<!-- rights -->")[2].strip().splitlines()
    for line in lines[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def documented() -> Iterator[tuple[Right, frozenset[str]]]:
    for service, scope, resources, verbs, _, _ in rows():
        for name, objects in re.findall(r"`([^`]+)`(?: \(([^)]*)\))?", resources):
            names = frozenset(each.strip() for each in objects.split(",") if each)
            yield (service, scope, name, names), frozenset(verbs.split(", "))


@pytest.fixture(scope="module")
def chart() -> dict[Right, set[str]]:
    return rendered()


def test_each_right_of_the_chart_is_in_the_threat_model_and_no_other(chart: dict[Right, set[str]]) -> None:
    page = dict(documented())
    assert {right: chart[right] for right in chart.keys() - page.keys()} == {}, "say what a takeover could do with it"
    assert {right: page[right] for right in page.keys() - chart.keys()} == {}, "the chart does not grant it any more"
    assert {right: verbs for right, verbs in page.items() if verbs != chart[right]} == {}, (
        "other verbs than the chart's"
    )


def test_each_right_has_one_row_with_a_reason_and_a_consequence() -> None:
    counts = Counter(right for right, _ in documented())
    assert [right for right, count in counts.items() if count > 1] == []
    for service, _, resources, _, reason, consequence in rows():
        assert reason, f"{service}: {resources} has no reason"
        assert consequence, f"{service}: {resources} has no consequence"


def test_the_defaulter_has_no_right(chart: dict[Right, set[str]]) -> None:
    others = {"test", "retire", "edit", "view", "health"}
    assert {service for service, *_ in chart} == {"webhook", "controllers", "console", *others}
