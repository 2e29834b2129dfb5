"""The conditions of a policy: Enforced is True only if KubeVirt applies the policy."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from controllers.migrationpolicy.plan import plan
from controllers.migrationpolicy.reasons import ActiveReason, EnforcedReason
from controllers.migrationpolicy.status import CHECKS, active, changed, enforced, status
from tests.controllers.migrationpolicy.builders import cluster, enforcing, given, policy

NOW, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)

ENFORCED = [
    pytest.param(given(enforcing=enforcing()), "InSync", id="in sync"),
    pytest.param(given(), "InSync", id="created just now"),
    pytest.param(given(older="old"), "NotActive", id="not active"),
    pytest.param(given(served=False), "CRDNotInstalled", id="no KubeVirt"),
    pytest.param(given(enforcing=enforcing(owner="", managed=False)), "NameConflict", id="the name is taken"),
    pytest.param(given(refusal="quota exceeded"), "FailedUpdate", id="KubeVirt's policy could not be written"),
    pytest.param(
        given(enforcing=enforcing(spec={"a": 1}), repair_postponed=True), "UpdateConflict", id="undone repairs"
    ),
    pytest.param(
        given(enforcing=enforcing(), unlabelled=(2, "denied"), overriding=("a",)), "FailedLabel", id="labels refused"
    ),
    pytest.param(given(enforcing=enforcing(), overriding=("a", "b")), "Overridden", id="KubeVirt may prefer others"),
    pytest.param(
        given(policy(disableTLS=True), enforcing=enforcing()),
        "Unsupported",
        id="TLS cannot be disabled",
        marks=pytest.mark.sentence("3.24"),
    ),
    pytest.param(given(policy(disableTLS=False), enforcing=enforcing()), "InSync", id="TLS by default"),
    pytest.param(
        given(policy(maxDowntimeMs=500), enforcing=enforcing(), cluster=cluster()), "Unsupported", id="the gate is off"
    ),
    pytest.param(
        given(policy(maxDowntimeMs=500), enforcing=enforcing(), cluster=cluster("MigrationStallDetection")),
        "InSync",
        id="the gate is on",
    ),
    pytest.param(
        given(policy(disableTLS=True), enforcing=enforcing(), cluster=cluster(disableTLS=True)),
        "InSync",
        id="TLS disabled for the whole cluster",
    ),
    pytest.param(
        given(policy(disableTLS=False), enforcing=enforcing(), cluster=cluster(disableTLS=True)),
        "Unsupported",
        id="TLS cannot be enabled for one policy",
    ),
]


@pytest.mark.parametrize(("known", "reason"), ENFORCED)
def test_whether_kubevirt_applies_the_policy(known, reason) -> None:
    finding = enforced(known)
    assert finding.reason == reason
    assert finding.message.endswith(".")


def test_every_check_has_a_case() -> None:
    assert len(CHECKS) == len({case.values[1] for case in ENFORCED} - {"InSync"})


ACTIVE = [
    pytest.param(given(), "Accepted", id="valid"),
    pytest.param(given(policy(expiresAt="2026-01-01T00:00:00Z"), expired=True), "Expired", id="expired"),
    pytest.param(given(policy(expiresAt="2026-01-01T00:00:00Z")), "Accepted", id="not expired yet"),
    pytest.param(given(older="old"), "SameSelectors", id="a duplicate of an older policy"),
    pytest.param(given(policy(instance={})), "NoSelectors", id="no selectors"),
    pytest.param(given(policy(instance={"bad key": ""})), "InvalidSpec", id="invalid"),
]


@pytest.mark.parametrize(("known", "reason"), ACTIVE)
def test_whether_the_policy_can_win(known, reason) -> None:
    assert active(known).reason == reason
    assert (reason == "Accepted") is known.active


@pytest.mark.parametrize(("known", "reason"), [*ENFORCED, *ACTIVE])
def test_a_condition_is_true_only_for_its_good_reason(known, reason) -> None:
    holds = {each.reason: each.status for each in status(known, NOW).conditions if each.type in ("Active", "Enforced")}
    assert {name for name, value in holds.items() if value == "True"} <= {"Accepted", "InSync"}
    assert holds.get("Accepted", "True") == holds.get("InSync", "True") == "True"


def test_a_duplicate_names_the_older_policy() -> None:
    assert "Policy old " in active(given(older="old")).message


def test_the_end_of_a_policy_is_named() -> None:
    temporary = policy(expiresAt="2026-01-01T02:00:00+02:00")
    assert active(given(temporary)).message == "The policy can win VMIs until 2026-01-01T00:00:00Z."
    assert active(given(temporary, expired=True)).message.startswith("The policy expired at 2026-01-01T00:00:00Z and")


def test_an_expired_policy_is_ready() -> None:
    found = status(given(policy(expiresAt="2026-01-01T00:00:00Z"), expired=True), NOW)
    assert {each.type: each.status for each in found.conditions} == {
        "Active": "False",
        "Enforced": "False",
        "Ready": "True",
    }


def test_ignored_settings_are_named_with_the_reason() -> None:
    asked = policy(maxDowntimeMs=500, experimental={"compression": "zstd"})
    assert enforced(given(asked, cluster=cluster(release="v1.8.4"))).message == (
        "This cluster ignores 2 settings, and applies the others. maxDowntimeMs: it needs KubeVirt 1.9, and this"
        " cluster has 1.8; experimental.compression: it needs KubeVirt 1.9, and this cluster has 1.8."
    )


def test_an_unchanged_status_stays_equal() -> None:
    first = status(given(wins=3, losses=1), NOW)
    again = given(policy(status=first.json()), wins=3, losses=1)
    assert status(again, LATER) == first
    assert changed(first, first) == ()


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = status(given(enforcing=enforcing()), NOW)
    later = status(given(policy(status=first.json()), overriding=("a",), enforcing=enforcing()), LATER)
    times = {each.type: each.last_transition_time for each in later.conditions}
    assert (times["Active"], times["Enforced"]) == ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    assert [each.reason for each in changed(first, later)] == ["Overridden"]


def test_a_foreign_policy_of_the_same_name_is_not_changed() -> None:
    taken = given(enforcing=enforcing(owner="", managed=False))
    assert enforced(taken).reason == "NameConflict"
    assert plan(taken) is None


def test_every_reason_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "reasons.md").read_text()
    assert {reason for kind in (ActiveReason, EnforcedReason) for reason in kind if f"`{reason}`" not in page} == set()
