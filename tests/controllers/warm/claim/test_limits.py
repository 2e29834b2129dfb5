"""How much one may have, of which pool, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controllers.warm.claim.choose import chosen
from controllers.warm.claim.lifetime import expires_at, warn_at
from controllers.warm.claim.limits import Holders
from controllers.warm.claim.state import Failure, moment, text
from controllers.warm.pools import Pool
from tests.controllers.warm.builders import NOW, a_pool, ago
from tests.controllers.warm.claim.builders import a_claim, bound, state

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
    holders = Holders()
    for number, requester in enumerate(held):
        for _ in range(2):  # said twice is held once
            holders.hold(f"c{number}", KEY, requester)
    pool = a_pool(claimPolicy=policy)
    assert (holders.over(a_claim(), pool) is not None) is over
    for number, _ in enumerate(held):
        holders.free(f"c{number}")
    assert holders.over(a_claim(), pool) is None


def test_who_holds_one_is_not_asked_again() -> None:
    holders, c = Holders(), a_claim()
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
def test_pool(name: str | None, pools: list[Pool], expected: str) -> None:
    found = chosen(a_claim(poolName=name), pools)
    assert (found.reason if isinstance(found, Failure) else found.name) == expected


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ([a_pool(), a_pool(name="db")], "namespace ns has no default one: name one in spec.poolName, of: db, web"),
        ([], "there is no warm pool in namespace ns"),
    ],
)
def test_whoever_names_no_pool_is_told_which_there_are(pools: list[Pool], said: str) -> None:
    found = chosen(a_claim(poolName=None), pools)
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
def test_lifetime(own: int | None, policy: dict[str, Any], seconds: int | None) -> None:
    spec = {"ttlSeconds": own} if own else {}
    found = state(a_claim(status=bound("m", seconds=0), **spec), pool=a_pool(claimPolicy=policy))
    expected = NOW + timedelta(seconds=seconds) if seconds else None
    assert expires_at(found) == expected
    if seconds:
        assert warn_at(found) == NOW + timedelta(seconds=seconds * 0.9)


def test_a_pool_that_is_gone_limits_no_more_than_it_did() -> None:
    ends = text(NOW + timedelta(seconds=50))
    found = state(a_claim(status=bound("m", expiresAt=ends), ttlSeconds=1000), absent=Failure("PoolNotFound", ""))
    assert expires_at(found) == moment(ends)
