"""When conditions keep their transition times."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from controllers.shared.conditions import condition, join_names, merge, names_and_verb, set_times
from poolhouse.api.kinds.conditions import CONDITIONS
from poolhouse.api.kinds.metav1 import MAX_MESSAGE

SOURCES = Path(__file__).parent.parent.parent.parent / "controllers"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEFORE = condition("Ready", True, "Old").model_copy(update={"last_transition_time": "2026-03-01T11:00:00Z"})


@pytest.mark.parametrize(
    ("holds", "since"),
    [
        pytest.param(True, "2026-03-01T11:00:00Z", id="an unchanged status keeps its time, whatever the reason"),
        pytest.param(False, "2026-03-01T12:00:00Z", id="a changed status gets the present time"),
    ],
)
def test_set_times(holds: bool, since: str) -> None:
    (found,) = set_times([condition("Ready", holds, "New")], [BEFORE], generation=3, now=NOW)
    assert (found.last_transition_time, found.observed_generation) == (since, 3)


def test_an_optional_condition_is_left_out_until_it_was_true() -> None:
    fresh = [condition("Paused", False, "Resumed")]
    assert set_times(fresh, [], generation=1, now=NOW) == ()
    before = [condition("Paused", True, "Paused")]
    assert len(set_times(fresh, before, generation=1, now=NOW)) == 1


def test_merge_keeps_conditions_of_other_types() -> None:
    found = merge([condition("Failed", True, "Broken")], [BEFORE], generation=1, now=NOW)
    assert [each.type for each in found] == ["Ready", "Failed"]


def test_a_message_that_quotes_a_long_annotation_does_not_prevent_the_status() -> None:
    assert len(condition("RevisionLost", True, "RevisionLost", "x" * (MAX_MESSAGE + 1)).message) == MAX_MESSAGE


@pytest.mark.parametrize(
    ("names", "expected"),
    [("", ""), ("ab", "a, b"), ("abcde", "a, b, c, d, e"), ("abcdefg", "a, b, c, d, e and 2 more")],
)
def test_join_names(names: str, expected: str) -> None:
    assert join_names(names) == expected


@pytest.mark.parametrize(("names", "expected"), [(["b"], "b is"), (["b", "a"], "a, b are")])
def test_names_and_verb(names: list[str], expected: str) -> None:
    assert names_and_verb(names, "is", "are") == expected


def test_the_controllers_set_exactly_the_declared_conditions() -> None:
    text = "\n".join(each.read_text() for each in SOURCES.rglob("*.py"))
    assert set(re.findall(r'\bcondition\(\s*"(\w+)"', text)) <= CONDITIONS.keys()
    assert not [name for name in CONDITIONS if f'"{name}"' not in text]
