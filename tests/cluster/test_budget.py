"""The budget that the chaos tests check: it finds a controller that stops one VM too many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.shared.vm import VM
from controllers.shared.vmi import VMI
from tests.cluster.budget import MOMENT_SECONDS, Budget
from tests.controllers.pool.builders import ago, vm


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock: Clock) -> Budget:
    """The budget of a pool of four available VMs, of which one may be unavailable."""
    found = Budget(clock, "u-web", 1)
    found.wants(4)
    for ordinal in range(1, 5):
        m = vm(ordinal)
        found.vm_seen(replace(m, vmi=None), gone=False)
        found.vmi_seen(run(m), gone=False)
    assert len(found.available()) == 4
    return found


def run(vm: VM) -> VMI:
    assert vm.vmi is not None
    return vm.vmi


def restarted(budget: Budget, ordinal: int) -> str:
    return budget.vmi_seen(replace(run(vm(ordinal)), deleted_at=ago(0)), gone=False)


def deleted(budget: Budget, ordinal: int) -> str:
    return budget.vm_seen(replace(vm(ordinal), deleted_at=ago(0), vmi=None), gone=False)


def test_the_controller_may_restart_one_vm_and_not_a_second(budget: Budget) -> None:
    assert restarted(budget, 1) == ""
    assert restarted(budget, 2) == "restarted web-2: 2 VMs are left available, 3 must be (and 0 were taken by others)"
    assert budget.taken == 2


def test_two_leaders_see_each_others_restarts_a_moment_later(budget: Budget, clock: Clock) -> None:
    budget.leaders = 2
    assert restarted(budget, 1) == ""
    assert restarted(budget, 2) == ""
    clock.now += 2
    assert restarted(budget, 3).startswith("restarted web-3: 1 VMs are left available, 3 must be")


def test_deleting_is_taking(budget: Budget) -> None:
    assert restarted(budget, 1) == ""
    assert deleted(budget, 2).startswith("deleted web-2")


def test_a_vm_that_is_unavailable_already_may_be_deleted(budget: Budget) -> None:
    assert restarted(budget, 1) == ""
    assert deleted(budget, 1) == ""


def test_a_vm_that_a_user_stops_does_not_count_for_the_controller_until_it_can_have_seen_it(
    budget: Budget, clock: Clock
) -> None:
    budget.spared.add("u-web-1")
    assert deleted(budget, 1) == ""
    assert restarted(budget, 2) == "", "they may not have been seen yet"
    clock.now += MOMENT_SECONDS
    assert restarted(budget, 3) != ""


def test_a_pool_that_is_to_be_smaller_may_lose_more(budget: Budget, clock: Clock) -> None:
    budget.wants(2)
    assert [deleted(budget, 1), deleted(budget, 2)] == ["", ""]
    assert restarted(budget, 3) == ""


def test_a_pool_that_is_to_be_larger_may_do_so_for_a_moment_only(budget: Budget, clock: Clock) -> None:
    budget.wants(9)
    assert restarted(budget, 1) == ""
    clock.now += MOMENT_SECONDS
    assert restarted(budget, 2) != ""
