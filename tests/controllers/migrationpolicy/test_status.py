"""What is said of a policy: never enforced when it is not, and nothing new when nothing is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from controllers.migrationpolicy.plan import plan
from controllers.migrationpolicy.status import CHECKS, active, enforced, status, turned
from tests.controllers.migrationpolicy.builders import enforcer, given, policy

NOW, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)

ENFORCED = [
    pytest.param(given(enforcer=enforcer()), "InStep", id="in step"),
    pytest.param(given(), "InStep", id="created just now"),
    pytest.param(given(elder="old"), "NotActive", id="takes no part"),
    pytest.param(given(served=False), "KindMissing", id="no KubeVirt"),
    pytest.param(given(enforcer=enforcer(owner="", marked=False)), "NameTaken", id="somebody has the name"),
    pytest.param(given(refusal="quota exceeded"), "Refused", id="KubeVirt's could not be written"),
    pytest.param(given(enforcer=enforcer(spec={"a": 1}), contested=True), "Contested", id="repaired in vain"),
    pytest.param(given(enforcer=enforcer(), unstamped=(2, "denied"), threats=("a",)), "StampRefused", id="no stamps"),
    pytest.param(given(enforcer=enforcer(), threats=("a", "b")), "Outranked", id="somebody may outrank it"),
    pytest.param(given(policy(disableTLS=True), enforcer=enforcer()), "Unsupported", id="TLS cannot be disabled"),
    pytest.param(given(policy(disableTLS=False), enforcer=enforcer()), "InStep", id="TLS as it is"),
    pytest.param(
        given(policy(disableTLS=True), enforcer=enforcer(), configuration={"disableTLS": True}),
        "InStep",
        id="TLS disabled for the whole cluster",
    ),
    pytest.param(
        given(policy(disableTLS=False), enforcer=enforcer(), configuration={"disableTLS": True}),
        "Unsupported",
        id="TLS cannot be enabled for one policy either",
    ),
]


@pytest.mark.parametrize(("known", "reason"), ENFORCED)
def test_whether_kubevirt_obeys(known, reason) -> None:
    news = enforced(known)
    assert news.reason == reason
    assert news.holds is (reason == "InStep")
    assert news.message.endswith(".")


def test_every_reason_is_seen_above() -> None:
    assert len(CHECKS) == len({case.values[1] for case in ENFORCED} - {"InStep"})


ACTIVE = [
    pytest.param(given(), "TakesPart", id="the usual one"),
    pytest.param(given(elder="old"), "SameSelectors", id="lost the race"),
    pytest.param(given(policy(instance={})), "NoSelectors", id="for nobody"),
    pytest.param(given(policy(instance={"bad key": ""})), "Invalid", id="not valid"),
]


@pytest.mark.parametrize(("known", "reason"), ACTIVE)
def test_whether_it_takes_part(known, reason) -> None:
    news = active(known)
    assert news.reason == reason
    assert news.holds is known.active


def test_the_loser_of_a_race_names_the_winner() -> None:
    assert "Policy old " in active(given(elder="old")).message


def test_what_was_said_is_not_said_again() -> None:
    first = status(given(wins=3, losses=1), NOW)
    again = given(policy(status=first), wins=3, losses=1)
    assert status(again, LATER) == first
    assert turned(first, first) == ()


def test_a_condition_keeps_its_time_until_it_turns() -> None:
    first = status(given(enforcer=enforcer()), NOW)
    later = status(given(policy(status=first), threats=("a",), enforcer=enforcer()), LATER)
    times = {each["type"]: each["lastTransitionTime"] for each in later["conditions"]}
    assert times == {"Active": "2026-01-01T00:00:00Z", "Enforced": "2026-01-02T00:00:00Z"}
    assert [each["reason"] for each in turned(first, later)] == ["Outranked"]


def test_a_policy_that_is_not_enforced_by_name_is_never_written_over() -> None:
    taken = given(enforcer=enforcer(owner="", marked=False))
    assert enforced(taken).reason == "NameTaken"
    assert plan(taken) is None


def test_every_reason_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "policies.md").read_text()
    reasons = {case.values[1] for case in ENFORCED} | {case.values[1] for case in ACTIVE}
    assert {reason for reason in reasons if f"`{reason}`" not in page} == set()
