"""The view of a pool, whatever its document lacks."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.snapshot import Pool, parse_pool, resolve_max_unavailable
from controllers.shared.invalid_spec import InvalidSpec
from tests.controllers.pool.builders import document

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param({"replicas": "many"}, "spec.replicas: Input should be a valid integer", id="a word for a number"),
        pytest.param({"replicas": None}, "spec.replicas", id="no number at all"),
        pytest.param({"template": None}, "spec.template", id="no template"),
        pytest.param({"maxUnavailable": "ten"}, "spec.maxUnavailable: must be a whole number", id="neither 10 nor 10%"),
        pytest.param({"maxUnavailable": "x%"}, "spec.", id="a percentage of nothing"),
        pytest.param(
            {"scaleInStrategy": {"proactive": {"selectionPolicy": {"basePolicy": "?"}}}}, "basePolicy", id="?"
        ),
    ],
)
def test_the_problem_of_an_invalid_spec(spec: Json, problem: str) -> None:
    found = parse_pool(document(**{"replicas": 3, **spec}))
    assert isinstance(found, InvalidSpec)
    assert problem in found.problem


def test_an_invalid_status_counts_as_empty() -> None:
    found = parse_pool(document(status={"replicas": "three"}))
    assert isinstance(found, Pool)
    assert found.status.replicas == 0


@pytest.mark.parametrize(
    ("limit", "replicas", "expected"),
    [
        pytest.param("25%", 8, 2, id="a quarter"),
        pytest.param("25%", 7, 1, id="rounded down"),
        pytest.param("25%", 3, 1, id="at least one"),
        pytest.param("100%", 0, 1, id="of nothing"),
        pytest.param(10, 3, 10, id="a number is a number"),
    ],
)
def test_resolve_max_unavailable(limit: int | str, replicas: int, expected: int) -> None:
    assert resolve_max_unavailable(limit, replicas) == expected
