"""Which sets are reconciled after an event."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.replicaset.controller import ReplicaSetController
from controllers.replicaset.metrics import ReplicaSetMetrics
from controllers.replicaset.observe import Stores
from controllers.shared.vmi import VMI
from poolhouse.runtime.resource import Key
from tests.controllers.replicaset.builders import NOW, a_set, orphan, vmi
from tests.planning import InlinePlanner

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
