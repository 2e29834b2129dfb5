"""What is remembered of what was done, and of what was not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from controllers.pool.actions import Heal
from controllers.pool.apply import PoolWriter
from controllers.pool.batch import Batches, Outcome
from controllers.pool.controller import PoolController
from controllers.pool.events import PoolEvents
from controllers.pool.machine import VM
from controllers.pool.metrics import PoolMetrics
from controllers.pool.plan import Plan
from controllers.pool.snapshot import Pool, PoolSnapshot
from controllers.pool.stores import Stores
from kinds.pool import PoolStatus
from runtime.controller import RetryWithBackoff
from runtime.expectations import Expectations
from tests.controllers.pool.builders import NOW, a_pool, machine

LONE = machine(2, owner="", owner_name="")
FAILING = machine(1, ready=False, exists=False, failures=3, state="CrashLoopBackOff")


class Carrying:
    """Carries out what it is told to, and keeps the statuses that it was to write."""

    def __init__(self, outcome: Callable[[Plan], Outcome]) -> None:
        self.outcome = outcome
        self.batches = Batches(cast(PoolEvents, None), Expectations(), lambda: 0.0)
        self.written: list[PoolStatus] = []

    async def __call__(self, state: PoolSnapshot, plan: Plan) -> Outcome:
        return self.outcome(plan)

    async def write_status(self, pool: Pool, status: PoolStatus) -> None:
        self.written.append(status)


def controlled(apply: Carrying, registry: CollectorRegistry) -> PoolController:
    stores = Stores()
    pool = a_pool(3, autohealing={})
    stores.pools.put(pool.key, pool)
    for m in (FAILING, machine(2), machine(3)):
        stores.machines.put(m.key, m)
        if m.guest is not None:
            stores.guests.put(m.key, m.guest)
    return PoolController(
        stores=stores,
        apply=cast(PoolWriter, apply),
        news=cast(PoolEvents, None),
        expectations=Expectations(),
        metrics=PoolMetrics(registry),
        burst=250,
        clock=lambda: 0.0,
        now=lambda: NOW,
    )


class Telling:
    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def moved(self, pool: Pool, vm: str, *, here: bool) -> None:
        self.told.append((vm, here))


@pytest.mark.parametrize(
    ("changes", "seconds", "told"),
    [
        pytest.param([(machine(2), LONE)], 1, [("web-2", False)], id="a VM is detached"),
        pytest.param([(LONE, machine(2))], 1, [("web-2", True)], id="a VM is put back"),
        pytest.param([(machine(2), LONE), (LONE, machine(2))], 1, [("web-2", True)], id="what holds now is told"),
        pytest.param([(None, machine(2)), (machine(3), None)], 1, [], id="VMs that are made and deleted are no such"),
        pytest.param([(machine(2), LONE)], 60, [], id="whoever led then has told it"),
    ],
)
async def test_that_a_vm_left_or_came_back_is_told_once(
    changes: list[tuple[VM | None, VM | None]], seconds: float, told: list[tuple[str, bool]]
) -> None:
    telling, now = Telling(), 0.0
    controller = controlled(Carrying(lambda plan: Outcome()), CollectorRegistry())
    controller.news, controller.clock = cast(PoolEvents, telling), lambda: now
    for old, new in changes:
        controller.machine_changed(lambda key, pause: None, old, new)
    now = seconds
    for _ in range(2):
        with contextlib.suppress(RetryWithBackoff):
            await controller.reconcile(("default", "web"))
    assert telling.told == told


def replaced(statuses: list[PoolStatus]) -> list[list[tuple[str, int]]]:
    found = [status.healing.machines if status.healing else () for status in statuses]
    return [[(each.name, each.attempts) for each in machines] for machines in found]


async def reconciled(outcome: Callable[[Plan], Outcome]) -> tuple[Carrying, Any]:
    registry = CollectorRegistry()
    apply = Carrying(outcome)
    controller = controlled(apply, registry)
    with contextlib.suppress(RetryWithBackoff):
        await controller.reconcile(("default", "web"))
    labels = {"namespace": "default", "vmpool": "web"}
    return apply, registry.get_sample_value("kubevirt_poolhouse_vmpool_heals_total", labels)


async def test_that_a_vm_is_replaced_is_written_down_before_it_is_done() -> None:
    apply, heals = await reconciled(lambda plan: Outcome())
    assert replaced(apply.written)[0] == [("web-1", 1)]
    assert heals == 1


@pytest.mark.parametrize("again", [True, False])
async def test_a_vm_that_was_not_replaced_after_all_is_not_left_alone_for_it(again: bool) -> None:
    def refused(plan: Plan) -> Outcome:
        return Outcome(again=again, undone=tuple(each for each in plan.actions if isinstance(each, Heal)))

    apply, heals = await reconciled(refused)
    assert replaced(apply.written) == [[("web-1", 1)], []]
    assert heals == 0


async def test_a_pool_that_is_to_heal_no_more_comes_to_rest() -> None:
    apply, now = Carrying(lambda plan: Outcome()), 0.0
    controller = controlled(apply, CollectorRegistry())
    controller.clock = lambda: now
    await controller.reconcile(("default", "web"))
    assert apply.written[-1].healing is not None
    written = []
    for _ in range(3):
        shown = a_pool(3, status=apply.written[-1].json())
        controller.stores.pools.put(shown.key, shown)
        now += 60
        await controller.reconcile(("default", "web"))
        written.append(len(apply.written))
    assert apply.written[-1].healing is None
    assert written[0] == written[1] == written[2]
