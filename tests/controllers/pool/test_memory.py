"""Names of deleted VMs whose disks may still exist."""

from __future__ import annotations

import pytest

from controllers.pool.memory import DeletedVMs


def blocked(*times: float) -> DeletedVMs:
    found = DeletedVMs()
    found.deleted("web-1", 0)
    for time in times:
        found.blocked("web-1", time)
    return found


@pytest.mark.parametrize(
    ("deleted", "now", "checked", "skipped"),
    [
        pytest.param(blocked(), 1, True, False, id="the disks of a VM deleted a moment ago may still exist"),
        pytest.param(blocked(), 301, False, False, id="a name that never blocked is forgotten"),
        pytest.param(blocked(10, 200), 301, True, False, id="but not if its disks existed at the last try"),
        pytest.param(blocked(10, 305), 311, True, True, id="after five minutes another name takes its place"),
        pytest.param(blocked(10, 305), 606, True, False, id="and later it is tried again"),
        pytest.param(blocked(10, 305, 606), 607, True, True, id="in vain"),
    ],
)
def test_which_names_are_checked_and_skipped(deleted: DeletedVMs, now: float, checked: bool, skipped: bool) -> None:
    assert deleted.to_check(now) == (frozenset({"web-1"}) if checked else frozenset())
    assert deleted.to_skip(now) == (frozenset({"web-1"}) if skipped else frozenset())


def test_a_vm_that_exists_again_is_not_checked() -> None:
    deleted = blocked(10, 400)
    deleted.created("web-1")
    assert not deleted.to_check(401)
