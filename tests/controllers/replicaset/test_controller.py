"""Which sets are reconciled after an event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.replicaset.controller import ReplicaSetController
from controllers.replicaset.metrics import ReplicaSetMetrics
from controllers.replicaset.observe import ReplicaSet, Stores, observe
from controllers.shared.planner import Planned, PlanTooExpensive
from controllers.shared.vmi import VMI
from poolhouse.runtime.resource import Key
from tests.controllers.replicaset.builders import NOW, a_set, orphan, vmi
from tests.cost import instructions
from tests.planning import InlinePlanner, P, T

API: Any = SimpleNamespace(monotonic=lambda: 0.0, now=lambda: NOW)
NOTHING: Any = None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(None, orphan("web-a"), id="an orphan appears"),
        pytest.param(orphan("web-a"), None, id="an orphan is gone"),
        pytest.param(orphan("web-a"), vmi("web-a", owner_uid="another", owner_name="db"), id="another set has it"),
        pytest.param(vmi("web-a"), vmi("web-a", ready=False), id="an own VMI changes"),
    ],
)
async def test_a_changed_vmi_enqueues_each_set_that_counts_it(old: VMI | None, new: VMI | None) -> None:
    stores, found = Stores(), a_set(1, paused=True)
    stores.sets.put(found.key, found)
    registry, planner = ReplicaSetMetrics(CollectorRegistry()), InlinePlanner()
    controller = ReplicaSetController(API, stores, NOTHING, NOTHING, NOTHING, registry, planner, 250)
    enqueued = set[Key]()

    def enqueue(key: Key, seconds: float) -> None:
        enqueued.add(key)

    controller.adopters.enqueue = enqueue
    controller.vmi_changed(enqueue, old, new)
    await controller.adopters.reconcile((found.namespace, ""))
    assert found.key in enqueued


def crowd(sets: int) -> ReplicaSetController:
    """A controller with so many other sets, as many orphans, and long selectors."""
    stores = Stores()
    never = {"matchExpressions": [{"key": f"key-{number}", "operator": "DoesNotExist"} for number in range(64)]}
    for number in range(sets):
        each, alone = replace(a_set(0), name=f"set-{number}", selector=never), orphan(f"vmi-{number}")
        stores.sets.put(each.key, each)
        stores.vmis.put(alone.key, alone)
    stores.sets.put(("default", "web"), a_set(0))
    registry = ReplicaSetMetrics(CollectorRegistry())
    return ReplicaSetController(API, stores, NOTHING, NOTHING, NOTHING, registry, InlinePlanner(), 250)


async def test_an_orphan_costs_the_event_loop_the_same_among_many_sets() -> None:
    """A tenant may have thousands of sets, and label an orphan all the time."""

    def cost(sets: int) -> int:
        controller, alone = crowd(sets), orphan("web-a")
        controller.vmi_changed(lambda key, seconds: None, None, alone)
        return instructions(lambda: controller.vmi_changed(lambda key, seconds: None, None, alone))

    assert cost(200) == cost(2)


def test_the_event_loop_compares_no_selector_with_orphans() -> None:
    def cost(sets: int) -> int:
        stores = crowd(sets).stores
        return instructions(lambda: observe(stores, ("default", "web"), synced=True, failure=None, burst=250))

    assert cost(200) - cost(2) < 200 * 20


@pytest.mark.parametrize(("orphans", "expected"), [(1, ["web"]), (100, [f"set-{n}" for n in range(200)])])
async def test_many_sets_and_orphans_are_not_compared(orphans: int, expected: list[str]) -> None:
    controller, enqueued = crowd(200), set[str]()
    for each in (each for each in controller.stores.sets.all() if each.name != "web"):
        assert isinstance(each, ReplicaSet)
        controller.stores.sets.put(each.key, replace(each, selector={"matchLabels": {"app": "other"}}))
    controller.adopters.enqueue = lambda key, seconds: enqueued.add(key[1])
    for number in range(orphans):
        labels = {"app": "web", "number": str(number)}
        controller.vmi_changed(lambda key, seconds: None, None, orphan(f"web-{number}", labels=labels))
    await controller.adopters.reconcile(("default", ""))
    assert enqueued == {*expected, "web"}


async def test_nothing_is_remembered_of_a_set_that_is_deleted_during_its_reconcile() -> None:
    stores, found = Stores(), a_set(1)
    stores.sets.put(found.key, found)

    class Meanwhile(InlinePlanner):
        async def run(self, of: Planned, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
            stores.sets.drop(found.key)
            controller.set_changed(lambda key, seconds: None, found, None)
            raise PlanTooExpensive(5.0)

    class Statuses:
        async def update(self, *_: object) -> SimpleNamespace:
            return SimpleNamespace(written=False, wait_seconds=None)

    registry, statuses = ReplicaSetMetrics(CollectorRegistry()), Statuses()
    controller = ReplicaSetController(API, stores, NOTHING, statuses, NOTHING, registry, Meanwhile(), 250)
    await controller.reconcile(found.key)
    assert not controller.records.memories
