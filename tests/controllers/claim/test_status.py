"""How long a claim keeps its VM."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.claim.expiry import expires_at, warns_at
from controllers.claim.plan import plan
from controllers.claim.status import released
from controllers.claim.steps import UpdateStatus
from controllers.warmpool.backends import HEALTHY, Health
from poolhouse.api.apimachinery.timestamps import format_micro_time
from tests.controllers.claim.builders import a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.warmpool.builders import NOW, a_pool


@pytest.mark.parametrize(
    ("own", "policy", "seconds"),
    [
        pytest.param(None, {}, None, id="never by default"),
        pytest.param(100, {}, 100, id="as the claim says"),
        pytest.param(None, {"defaultTTLSeconds": 60}, 60, id="as the pool says"),
        pytest.param(100, {"defaultTTLSeconds": 60}, 100, id="the claim takes precedence over the pool's default"),
        pytest.param(100, {"maxTTLSeconds": 50}, 50, id="the pool's limit takes precedence over the claim"),
        pytest.param(None, {"maxTTLSeconds": 50}, 50, id="a limit excludes never"),
    ],
)
def test_the_limits_of_claim_and_pool_decide_when_a_bound_claim_expires(
    own: int | None, policy: dict[str, Any], seconds: int | None
) -> None:
    spec: dict[str, Any] = {"ttlSeconds": own} if own else {}
    found = snapshot(a_claim(**spec), claimed_vm(), pool=a_pool(claimPolicy=policy), health=HEALTHY)
    step = plan(found, NOW)
    assert isinstance(step, UpdateStatus)
    assert step.status.expires_at == (format_micro_time(NOW + timedelta(seconds=seconds)) if seconds else None)
    after = replace(found, claim=replace(found.claim, status=step.status))
    if seconds:
        assert warns_at(after) == NOW + timedelta(seconds=seconds * 0.9)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"phase": "Queued"}, "the claim was released before it had a VM", id="while it waited"),
        pytest.param(
            bound_status("m", phase="Releasing"), "the claim was released and its VM is gone", id="after its VM"
        ),
    ],
)
def test_what_a_released_claim_says_of_its_vm(status: dict[str, Any], expected: str) -> None:
    conditions = released(snapshot(a_claim(status=status)), NOW).conditions
    assert {each.message for each in conditions if each.reason == "Released"} == {expected}


HOUR = 3600
LOWERED = {"defaultTTLSeconds": HOUR, "maxTTLSeconds": HOUR}


@pytest.mark.parametrize(
    ("said", "own", "policy", "ends"),
    [
        # `said` and `ends` are seconds after it was bound, two hours ago.
        pytest.param(None, None, LOWERED, None, id="a limit that is set does not end a claim without expiry"),
        pytest.param(3 * HOUR, None, LOWERED, 3 * HOUR, id="a limit that is lowered shortens nothing"),
        pytest.param(3 * HOUR, None, {}, 3 * HOUR, id="a limit that is lifted extends nothing"),
        pytest.param(3 * HOUR, 3 * HOUR, None, 3 * HOUR, id="a deleted pool changes nothing"),
    ],
)
def test_later_changes_of_the_pool_do_not_concern_a_bound_claim(
    said: int | None, own: int | None, policy: dict[str, Any] | None, ends: int | None
) -> None:
    assert _end(said, own, policy, changed=False) == ends


@pytest.mark.parametrize(
    ("said", "own", "policy", "ends"),
    [
        pytest.param(3 * HOUR, 5 * HOUR, {}, 5 * HOUR, id="longer"),
        pytest.param(3 * HOUR, HOUR, {}, HOUR, id="shorter than the time that has passed"),
        pytest.param(3 * HOUR, 5 * HOUR, {"maxTTLSeconds": 4 * HOUR}, 4 * HOUR, id="longer, up to the pool's limit"),
        pytest.param(3 * HOUR, 5 * HOUR, LOWERED, 3 * HOUR, id="a request for more never gives less"),
        pytest.param(None, 5 * HOUR, LOWERED, 5 * HOUR, id="a request below never gives no less, with a limit"),
        pytest.param(3 * HOUR, None, {}, None, id="the claim's TTL is removed: the pool's default applies"),
        pytest.param(3 * HOUR, None, {"maxTTLSeconds": 4 * HOUR}, 4 * HOUR, id="with the pool's limit"),
        pytest.param(3 * HOUR, 5 * HOUR, None, 3 * HOUR, id="a deleted pool allows no extension"),
        pytest.param(3 * HOUR, None, None, 3 * HOUR, id="a deleted pool does not allow to remove the claim's TTL"),
        pytest.param(None, 5 * HOUR, None, 5 * HOUR, id="a claim without expiry may get one after that"),
        pytest.param(3 * HOUR, HOUR, None, HOUR, id="a shorter time after the pool is deleted"),
    ],
)
def test_changes_of_the_claims_ttl(
    said: int | None, own: int | None, policy: dict[str, Any] | None, ends: int | None
) -> None:
    assert _end(said, own, policy, changed=True) == ends


def _end(said: int | None, own: int | None, policy: dict[str, Any] | None, *, changed: bool) -> float | None:
    bound_at = NOW - timedelta(hours=2)
    until = format_micro_time(bound_at + timedelta(seconds=said)) if said else None
    status = bound_status("m", seconds=2 * HOUR, expiresAt=until, observedGeneration=0 if changed else 1)
    pool: dict[str, Any] = {"no_pool": None} if policy is None else {"pool": a_pool(claimPolicy=policy)}
    end = expires_at(snapshot(a_claim(status=status, ttlSeconds=own), **pool))
    return (end - bound_at).total_seconds() if end is not None else None


def test_a_ttl_change_survives_another_status_update() -> None:
    """Any status update records the observed generation, so it must record the new expiry too."""
    status = bound_status(
        "m", "Started", seconds=10, expiresAt=format_micro_time(NOW + timedelta(seconds=90)), observedGeneration=0
    )
    found = snapshot(
        a_claim(status=status, ttlSeconds=1000), claimed_vm(activated=True), health=Health("Failed", "NoAnswer")
    )
    step = plan(found, NOW)
    assert isinstance(step, UpdateStatus)
    assert step.status.expires_at == format_micro_time(NOW + timedelta(seconds=990))
    after = replace(found.claim, status=step.status)
    assert expires_at(replace(found, claim=after)) == NOW + timedelta(seconds=990)
