"""Which sets are reconciled after an event."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.replicaset.controller import ReplicaSetController
from controllers.replicaset.metrics import ReplicaSetMetrics
from controllers.replicaset.observe import Stores
from controllers.shared.planner import Planned, PlanTooExpensive
from controllers.shared.vmi import VMI
from poolhouse.runtime.resource import Key
from tests.controllers.replicaset.builders import NOW, a_set, orphan, vmi
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
def test_a_set_that_counts_a_vmi_hears_of_it(old: VMI | None, new: VMI | None) -> None:
    stores, found = Stores(), a_set(1, paused=True)
    stores.sets.put(found.key, found)
    registry, planner = ReplicaSetMetrics(CollectorRegistry()), InlinePlanner()
    controller = ReplicaSetController(API, stores, NOTHING, NOTHING, NOTHING, registry, planner, 250)
    enqueued = set[Key]()
    controller.vmi_changed(lambda key, seconds: enqueued.add(key), old, new)
    assert found.key in enqueued


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
