"""Which machine a claim would get, others' turns respected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.claim.observe import ClaimObserver, Floor, Stores
from controllers.claim.record import ClaimRecord
from controllers.claim.wait_queue import WaitQueue
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool, by_namespace, by_uid
from controllers.warmpool.warm_vm import WarmVM
from kinds.warm_states import WarmState
from runtime.expectations import Expectations
from runtime.store import Store
from tests.controllers.claim.builders import a_claim
from tests.controllers.warmpool.builders import CORDONED, OTHER_TEMPLATE, a_pool, a_vm
from tests.controllers.warmpool.test_cache import queues

POOL = a_pool()
OLD = a_pool(template=OTHER_TEMPLATE)
IMAGE: dict[str, Any] = {"overrides": {"image": "base:2"}}
TYPE: dict[str, Any] = {"overrides": {"instancetype": "large"}}
EAST: dict[str, Any] = {"overrides": {"placement": "east"}}
PLACES = a_pool(placements=[{"name": "east"}, {"name": "west"}])
RECREATE = a_pool(updateStrategy={"type": "Recreate"})


def candidate(*machines: WarmVM, pool: WarmPool = POOL, waiting: int = 0, **wants: Any) -> str | None:
    """The one that a newcomer would get, after those who wait."""
    found, floor, line = queues(*machines), Floor(), WaitQueue()
    floor.shelves.reset(machines)
    for number in range(waiting):
        line.join("somebody", f"{number:03}", f"other-{number}")
    observe = ClaimObserver(Stores(Store(), Store(), found), floor, Expectations(), lambda: 0.0)
    given = observe.candidate(a_claim(**wants), pool, line)
    return given.uid if given is not None else None


@pytest.mark.parametrize(
    ("machines", "waiting", "served"),
    [
        pytest.param(["a"], 0, True, id="one, and nobody waits"),
        pytest.param(["a"], 1, False, id="it is for who waits"),
        pytest.param(["a", "b"], 1, True, id="one for each"),
    ],
)
def test_who_comes_last_gets_what_is_left(machines: list[str], waiting: int, served: bool) -> None:
    assert (candidate(*map(a_vm, machines), waiting=waiting) is not None) == served


@pytest.mark.parametrize(
    "facts",
    [pytest.param({"orphaned": "Disowned"}, id="orphans"), pytest.param({"node": CORDONED}, id="on a cordoned node")],
)
def test_machines_that_nobody_gets_are_nobodys_turn(facts: dict[str, Any]) -> None:
    unfit = [replace(a_vm(f"x{number}"), **facts) for number in range(5)]
    assert candidate(a_vm("fit"), *unfit, waiting=2) is None
    assert candidate(a_vm("fit"), *unfit) == "fit"


@pytest.mark.parametrize(
    ("pool", "wants", "expected"),
    [
        pytest.param(POOL, {}, "old", id="an old one serves while it is there"),
        pytest.param(POOL, IMAGE, None, id="but not whoever wants an image, which it may not have"),
        pytest.param(POOL, TYPE, None, id="or a type"),
        pytest.param(RECREATE, {}, None, id="nor anybody where it is only to be replaced"),
    ],
)
def test_a_machine_of_an_older_template(pool: WarmPool, wants: dict[str, Any], expected: str | None) -> None:
    old, new = a_vm("old", of=OLD), a_vm("new", of=pool)
    assert candidate(old, pool=pool, **wants) == expected
    assert candidate(old, new, pool=pool, **wants) == "new"


def test_old_ones_that_serve_nobody_are_nobodys_turn() -> None:
    old = [a_vm(f"x{number}", of=OLD) for number in range(5)]
    assert candidate(a_vm("new"), *old, pool=RECREATE, waiting=1) is None


def test_a_placement_that_is_wanted() -> None:
    east, west = (a_vm(name, of=PLACES, placement=name) for name in ("east", "west"))
    assert candidate(east, west, pool=PLACES, **EAST) == "east"
    assert candidate(west, pool=PLACES, **EAST) is None


@pytest.mark.parametrize(
    ("facts", "full"),
    [
        pytest.param({}, True, id="as many as it may have"),
        pytest.param({"deleting": True}, True, id="those that go among them"),
        pytest.param({"orphaned": "TemplateChanged"}, False, id="but no orphans"),
    ],
)
def test_a_pool_that_is_full(facts: dict[str, Any], full: bool) -> None:
    pools: Store[WarmPool | InvalidWarmPool] = Store({"namespace": by_namespace, "uid": by_uid})
    pools.put(("ns", "web"), a_pool(2, maxTotal=2))
    stores = Stores(Store(), pools, queues(*(a_vm(name, WarmState.UNHEALTHY, **facts) for name in "ab")))
    observe = ClaimObserver(stores, Floor(), Expectations(), lambda: 0.0)
    assert observe(a_claim(), ClaimRecord()).full is full
