"""States, conditions and times in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controllers.shared.vm import VM, LifecycleHold
from controllers.shared.vmi import VMI
from poolhouse.console.page import Slice, matches, object_path, with_query
from poolhouse.console.words import age, condition_rows, vm_state, vmi_state

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUNNING = VMI("shop", "web-1", "vmi", phase="Running", ready=True)
READY = VM("shop", "web-1", "uid", ready=True, vmi_exists=True, vmi=RUNNING)


@pytest.mark.parametrize(
    ("vm", "state"),
    [
        (READY, "ready"),
        (replace(READY, ready=False), "starting"),
        (replace(READY, vmi=None), "starting"),
        (replace(READY, ready=False, start_failures=2), "failing"),
        (replace(READY, should_run=False), "halting"),
        (replace(READY, ready=False, vmi=replace(RUNNING, phase="Failed", ready=False)), "failing"),
        (replace(READY, should_run=False, vmi_exists=False, vmi=None), "halted"),
        (replace(READY, deleted_at="2026-03-01T12:00:00Z"), "deleting"),
        (replace(READY, hold=LifecycleHold("Terminating", "t", "vmi")), "held"),
    ],
)
def test_the_state_of_a_vm(vm: VM, state: str) -> None:
    assert vm_state(vm) == state


@pytest.mark.parametrize(
    ("vmi", "state"),
    [
        (RUNNING, "ready"),
        (replace(RUNNING, ready=False), "starting"),
        (replace(RUNNING, phase="Failed"), "failing"),
        (replace(RUNNING, start_failure="ErrImagePull"), "failing"),
        (replace(RUNNING, phase="Succeeded"), "halted"),
        (replace(RUNNING, deleted_at="t"), "deleting"),
    ],
)
def test_the_state_of_a_vmi(vmi: VMI, state: str) -> None:
    assert vmi_state(vmi) == state


def condition(kind: str, status: str, reason: str = "R", message: str = "m") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-03-01T11:58:00Z",
    }


def test_problems_come_first_and_have_words() -> None:
    conditions = [
        condition("Available", "False", "MinimumReplicasUnavailable"),
        condition("Progressing", "False", "FailedCreate"),
        condition("Stalled", "True", "FailedCreate"),
    ]
    assert [
        (each["words"], each["bad"], each["since"]) for each in condition_rows({"conditions": conditions}, NOW)
    ] == [
        ("Changes make no progress", True, "2m"),
        ("A user must change something", True, "2m"),
        ("Too few VMs are available", False, "2m"),
    ]
    assert not any(each["bad"] for each in condition_rows({"conditions": conditions[:2]}, NOW))


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("Complete", "Nothing is left to change"),
        ("UpdatePaused", "The update waits"),
        ("R", "Changes make progress, or are complete"),
    ],
)
def test_progress_has_words_for_its_reason(reason: str, says: str) -> None:
    assert condition_rows({"conditions": [condition("Progressing", "True", reason)]}, NOW)[0]["words"] == says


def test_a_claim_that_has_expired_needs_no_help() -> None:
    rows = condition_rows({"conditions": [condition("Bound", "False", "Expired")]}, NOW)
    assert [(each["words"], each["bad"]) for each in rows] == [("It has no VM", False)]


def test_a_condition_without_words_is_shown_as_it_is() -> None:
    rows = condition_rows({"conditions": [condition("Odd", "False"), condition("New", "Unknown")]}, NOW)
    assert [each["words"] for each in rows] == ["not Odd", "New is unknown"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (290, "4m50s"), (7199, "119m"), (12_600, "3h30m"), (172_800, "2d"), (-5, "0s")],
)
def test_an_age_has_the_form_of_kubectl(seconds: float, text: str) -> None:
    then = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert age(then, NOW) == text


@pytest.mark.parametrize(
    ("page", "number", "first"),
    [("1", 1, 0), ("3", 3, 200), ("99", 3, 200), ("0", 1, 0), ("-1", 1, 0), ("x", 1, 0), ("9" * 30, 1, 0), ("", 1, 0)],
)
def test_a_long_list_has_pages(page: str, number: int, first: int) -> None:
    found = Slice.of(range(250), {"page": page})
    assert (found.number, found.pages, found.total, found.rows[0]) == (number, 3, 250, first)


def test_an_empty_list_has_one_page() -> None:
    assert Slice.of([], {}) == Slice([], 0, 1, 1)


def test_a_link_quotes_its_query_and_its_name() -> None:
    assert with_query({"q": "a b", "page": "2"}, page="", state="x&y") == "?q=a+b&state=x%26y"
    assert with_query({}) == "?"
    assert object_path("migpol", None, "a/b") == "/migpol/-/a%2Fb"


def test_a_row_matches_if_it_has_all_words_of_the_query() -> None:
    assert matches("Web-1 on Node-2", {"q": "node web"})
    assert not matches("web-1", {"q": "web-2"})
