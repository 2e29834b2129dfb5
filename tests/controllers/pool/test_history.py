"""Revisions that nobody needs."""

from __future__ import annotations

import pytest

from controllers.pool.actions import PruneRevision
from controllers.pool.guest import VMI
from controllers.pool.machine import VM
from controllers.pool.plan import plan
from controllers.pool.revisions import Revision
from tests.controllers.pool.builders import NOW, REVISION, a_pool, machine, state

SAVED = tuple(Revision(f"web-o{n}", "u-web", n, f"m{n}", f"g{n}") for n in range(-5, 0))


@pytest.mark.parametrize(
    ("limit", "machines", "expected"),
    [
        pytest.param(10, [machine(1)], [], id="as many as can be gone back to"),
        pytest.param(3, [machine(1)], ["web-o-5", "web-o-4"], id="the oldest go"),
        pytest.param(0, [machine(1)], [each.name for each in SAVED], id="none is kept"),
        pytest.param(
            4, [machine(1, guest=VMI("default", "web-1", "run", "u-web-1", "5"))], [], id="what a VM runs is kept"
        ),
    ],
)
def test_old_revisions(limit: int, machines: list[VM], expected: list[str]) -> None:
    of = a_pool(1, revisionHistoryLimit=limit, updateStrategy={"unmanaged": {}})
    observed = state(of, *machines, revisions=(*SAVED, REVISION))
    assert [each.name for each in plan(observed, NOW).actions if isinstance(each, PruneRevision)] == expected
