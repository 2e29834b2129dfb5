"""Names of VMs are host names, so that a long name of a pool leaves room for few digits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import Create
from controllers.pool.causes import why_not_started
from controllers.pool.plan import plan
from poolhouse.api.kinds import POOL
from tests.controllers.pool.builders import NOW, a_pool, snapshot
from tests.kinds.documents import changed
from tests.kinds.documents import pool as document

LONG = "m" * 61


def surging(name: str, replicas: int, surge: Any) -> Any:
    given = document(replicas=replicas, updateStrategy={"proactive": {"maxSurge": surge}})
    return changed(given, name, "metadata", "name")


@pytest.mark.parametrize(
    ("name", "replicas", "surge", "refused"),
    [
        pytest.param(LONG, 9, 1, True, id="one more"),
        pytest.param(LONG, 8, 1, False, id="the last number of one digit"),
        pytest.param(LONG, 8, 2, True, id="two more"),
        pytest.param(LONG, 5, "100%", True, id="a percentage"),
        pytest.param(LONG, 4, "100%", False, id="a percentage that fits"),
        pytest.param(LONG, 9, "1%", True, id="a percentage is rounded up"),
        pytest.param(LONG[1:], 9, 1, False, id="a shorter name"),
        pytest.param(LONG[1:], 60, "100%", True, id="three digits"),
    ],
)
def test_surge_fits_into_the_names(name: str, replicas: int, surge: Any, refused: bool) -> None:
    problems = [each for each in POOL.problems(surging(name, replicas, surge)) if each.path.endswith("maxSurge")]
    assert bool(problems) == refused
    assert all("a host name has at most 63" in each.message for each in problems)


def test_no_vm_gets_a_longer_name_and_the_pool_says_so() -> None:
    """Numbers of detached VMs are skipped, which admission does not know."""
    pool = replace(a_pool(9), name=LONG)
    full = snapshot(pool, taken_ordinals=frozenset(range(1, 10)))
    assert not [each for each in plan(full, NOW).actions if isinstance(each, Create)]
    assert why_not_started(full) == f"the next free name {LONG}-10 has more than 63 characters: free a lower number"
    imported = replace(pool, first_ordinal=0)
    waits = snapshot(imported, taken_ordinals=frozenset(range(1, 10)), waited_for=frozenset({f"{LONG}-0"}))
    assert why_not_started(waits).startswith(f"{LONG}-0: disks of an earlier VM"), "number 0 is free"
    some = snapshot(pool, taken_ordinals=frozenset(range(1, 8)))
    assert [each.name[-2:] for each in plan(some, NOW).actions if isinstance(each, Create)] == ["-8", "-9"]
