"""How much one may have, of which pool, and for how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.claim.allocator import select_pool
from controllers.claim.expiry import expires_at, warn_at
from controllers.claim.limits import QuotaTracker
from controllers.claim.plan import plan
from controllers.claim.snapshot import Failure, text
from controllers.claim.steps import UpdateStatus
from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.warm_pool import WarmPool
from tests.controllers.claim.builders import a_claim, bound, state, taken
from tests.controllers.warmpool.builders import NOW, a_pool, ago

KEY = ("ns", "web")


@pytest.mark.parametrize(
    ("policy", "held", "over"),
    [
        pytest.param({}, ["", "", "ann"], False, id="no limits by default"),
        pytest.param({"maxPerUser": 2}, ["", "ann", "ann"], False, id="others' are not one's own"),
        pytest.param({"maxPerUser": 2}, ["", ""], True, id="enough of one's own"),
        pytest.param({"maxPerNamespace": 3}, ["", "ann", "bob"], True, id="enough of all"),
        pytest.param({"maxPerNamespace": 3}, ["", "ann"], False, id="room for one"),
    ],
)
def test_limits(policy: dict[str, int], held: list[str], over: bool) -> None:
    holders = QuotaTracker()
    for number, requester in enumerate(held):
        for _ in range(2):  # said twice is held once
            holders.hold(f"c{number}", KEY, requester)
    pool = a_pool(claimPolicy=policy)
    assert (holders.over(a_claim(), pool) is not None) is over
    for number, _ in enumerate(held):
        holders.free(f"c{number}")
    assert holders.over(a_claim(), pool) is None


def test_who_holds_one_is_not_asked_again() -> None:
    holders, c = QuotaTracker(), a_claim()
    holders.hold(c.uid, KEY, "")
    assert holders.over(c, a_pool(claimPolicy={"maxPerUser": 1})) is None


@pytest.mark.parametrize(
    ("name", "pools", "expected"),
    [
        pytest.param("web", [a_pool(), a_pool(name="db", default=True)], "web", id="the one that is named"),
        pytest.param(None, [a_pool(), a_pool(name="db", default=True)], "db", id="else the default"),
        pytest.param(
            None,
            [
                a_pool(name="new", default=True, creationTimestamp=ago(5)),
                a_pool(name="old", default=True, creationTimestamp=ago(9)),
            ],
            "old",
            id="of two defaults the older one",
        ),
        pytest.param(None, [a_pool()], "NoDefaultPool", id="no default"),
        pytest.param(None, [], "NoDefaultPool", id="no pool at all"),
        pytest.param("nowhere", [a_pool()], "PoolNotFound", id="no such pool"),
        pytest.param("web", [a_pool(deletionTimestamp=ago(1))], "PoolNotFound", id="a pool that goes"),
    ],
)
def test_pool(name: str | None, pools: list[WarmPool], expected: str) -> None:
    found = select_pool(a_claim(poolName=name), pools)
    assert (found.reason if isinstance(found, Failure) else found.name) == expected


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ([a_pool(), a_pool(name="db")], "namespace ns has no default one: name one in spec.poolName, of: db, web"),
        ([], "there is no warm pool in namespace ns"),
    ],
)
def test_whoever_names_no_pool_is_told_which_there_are(pools: list[WarmPool], said: str) -> None:
    found = select_pool(a_claim(poolName=None), pools)
    assert isinstance(found, Failure)
    assert found.message == f"it names no pool, and {said}"


@pytest.mark.parametrize(
    ("own", "policy", "seconds"),
    [
        pytest.param(None, {}, None, id="for ever by default"),
        pytest.param(100, {}, 100, id="as it says"),
        pytest.param(None, {"defaultTTLSeconds": 60}, 60, id="as the pool says"),
        pytest.param(100, {"defaultTTLSeconds": 60}, 100, id="a claim's own wish wins"),
        pytest.param(100, {"maxTTLSeconds": 50}, 50, id="but not beyond the limit"),
        pytest.param(None, {"maxTTLSeconds": 50}, 50, id="nor for ever"),
    ],
)
def test_what_is_granted_when_it_is_bound(own: int | None, policy: dict[str, Any], seconds: int | None) -> None:
    spec: dict[str, Any] = {"ttlSeconds": own} if own else {}
    found = state(a_claim(**spec), taken(), pool=a_pool(claimPolicy=policy), health=HEALTHY)
    step = plan(found, NOW)
    assert isinstance(step, UpdateStatus)
    assert step.status.expires_at == (text(NOW + timedelta(seconds=seconds)) if seconds else None)
    after = replace(found, claim=replace(found.claim, status=step.status))
    if seconds:
        assert warn_at(after) == NOW + timedelta(seconds=seconds * 0.9)


HOUR = 3600
LOWERED = {"defaultTTLSeconds": HOUR, "maxTTLSeconds": HOUR}


@pytest.mark.parametrize(
    ("said", "own", "policy", "ends"),
    [
        # `said` and `ends` are seconds after it was bound, which is two hours ago.
        pytest.param(None, None, LOWERED, None, id="a limit takes nothing back"),
        pytest.param(3 * HOUR, None, LOWERED, 3 * HOUR, id="nor anything of it"),
        pytest.param(3 * HOUR, None, {}, 3 * HOUR, id="nor gives one that is lifted"),
        pytest.param(3 * HOUR, 3 * HOUR, None, 3 * HOUR, id="and a pool that is gone changes nothing"),
    ],
)
def test_what_the_pool_says_later_is_for_others(
    said: int | None, own: int | None, policy: dict[str, Any] | None, ends: int | None
) -> None:
    assert _end(said, own, policy, changed=False) == ends


@pytest.mark.parametrize(
    ("said", "own", "policy", "ends"),
    [
        pytest.param(3 * HOUR, 5 * HOUR, {}, 5 * HOUR, id="longer"),
        pytest.param(3 * HOUR, HOUR, {}, HOUR, id="shorter, and over with it"),
        pytest.param(3 * HOUR, 5 * HOUR, {"maxTTLSeconds": 4 * HOUR}, 4 * HOUR, id="longer up to the limit"),
        pytest.param(3 * HOUR, 5 * HOUR, LOWERED, 3 * HOUR, id="to ask for more never makes it less"),
        pytest.param(None, 5 * HOUR, LOWERED, 5 * HOUR, id="as little is less than for ever"),
        pytest.param(3 * HOUR, None, {}, None, id="the claim's own wish is taken back: as the pool says"),
        pytest.param(3 * HOUR, None, {"maxTTLSeconds": 4 * HOUR}, 4 * HOUR, id="which has its limit"),
        pytest.param(3 * HOUR, 5 * HOUR, None, 5 * HOUR, id="a pool that is gone limits nothing"),
        pytest.param(3 * HOUR, HOUR, None, HOUR, id="and what is given back earlier is given back"),
    ],
)
def test_a_claim_that_changes_its_time(
    said: int | None, own: int | None, policy: dict[str, Any] | None, ends: int | None
) -> None:
    assert _end(said, own, policy, changed=True) == ends


def _end(said: int | None, own: int | None, policy: dict[str, Any] | None, *, changed: bool) -> float | None:
    bound_at = NOW - timedelta(hours=2)
    until = text(bound_at + timedelta(seconds=said)) if said else None
    status = bound("m", seconds=2 * HOUR, expiresAt=until, observedGeneration=0 if changed else 1)
    pool: dict[str, Any] = {"absent": None} if policy is None else {"pool": a_pool(claimPolicy=policy)}
    end = expires_at(state(a_claim(status=status, ttlSeconds=own), **pool))
    return (end - bound_at).total_seconds() if end is not None else None


def test_a_change_is_heard_whatever_is_said_at_that_moment() -> None:
    """What is not well yet is said with the generation that is answered, and so must the end be."""
    status = bound("m", "Started", seconds=10, expiresAt=text(NOW + timedelta(seconds=90)), observedGeneration=0)
    found = state(a_claim(status=status, ttlSeconds=1000), taken(activated=True), health=Health("Failed", "NoAnswer"))
    step = plan(found, NOW)
    assert isinstance(step, UpdateStatus)
    assert step.status.expires_at == text(NOW + timedelta(seconds=990))
    after = replace(found.claim, status=step.status)
    assert expires_at(replace(found, claim=after)) == NOW + timedelta(seconds=990)
