"""Names of VMs that went, whose disks may still be there."""

from __future__ import annotations

import pytest

from controllers.pool.memory import DeletedVMs


def refusals(*times: float) -> DeletedVMs:
    found = DeletedVMs()
    found.went("u", "web-1", 0)
    for time in times:
        found.refused("u", "web-1", time)
    return found


@pytest.mark.parametrize(
    ("leftovers", "now", "suspect", "passed_over"),
    [
        pytest.param(refusals(), 1, True, False, id="the disks of one that went a moment ago may be there"),
        pytest.param(refusals(), 301, False, False, id="what nobody missed is forgotten"),
        pytest.param(refusals(10, 200), 301, True, False, id="but not where they were there at the last try"),
        pytest.param(refusals(10, 305), 311, True, True, id="after five minutes another name takes its place"),
        pytest.param(refusals(10, 305), 606, True, False, id="and later it is tried again"),
        pytest.param(refusals(10, 305, 606), 607, True, True, id="in vain"),
    ],
)
def test_what_becomes_of_a_name(leftovers: DeletedVMs, now: float, suspect: bool, passed_over: bool) -> None:
    assert leftovers.suspect("u", now) == (frozenset({"web-1"}) if suspect else frozenset())
    assert leftovers.passed_over("u", now) == (frozenset({"web-1"}) if passed_over else frozenset())
    assert not leftovers.suspect("another", now)


def test_one_that_came_back_is_suspect_no_more() -> None:
    leftovers = refusals(10, 400)
    leftovers.came("u", "web-1")
    assert not leftovers.suspect("u", 401)


def test_a_pool_that_is_gone_leaves_nothing() -> None:
    leftovers = refusals(10)
    leftovers.forget("u")
    assert not leftovers.suspect("u", 11)
