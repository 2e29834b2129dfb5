"""What a scrape finds: every series of a pool while it is there, and none of them after."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from controllers.pool.guest import VMI, Transition, transitions
from controllers.pool.metrics import PoolMetrics
from kinds.metav1 import Condition
from kinds.pool import Breaker, Healing, PoolStatus
from tests.controllers.pool.builders import a_pool, machine

POOL = {"namespace": "default", "vmpool": "web"}
KEY = ("default", "web")
PENDING = VMI("default", "web-1", "run", phase="Pending", born=100, passed=(("Pending", 101),))
RUNNING = replace(PENDING, phase="Running", passed=(("Pending", 101), ("Scheduled", 104), ("Running", 110)))
ENDED = replace(RUNNING, phase="Succeeded", deleted_at=200, passed=(*RUNNING.passed, ("Succeeded", 203)))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> PoolMetrics:
    found = PoolMetrics(registry)
    found.pool(a_pool(3), PoolStatus())
    return found


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"kubevirt_poolhouse_{name}", {**POOL, **labels})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            PENDING,
            RUNNING,
            [Transition("Pending", "Scheduled", 3, 4, None), Transition("Scheduled", "Running", 6, 10, None)],
            id="a phase that was passed between two looks is counted",
        ),
        pytest.param(
            replace(PENDING, phase="", passed=()), PENDING, [Transition("", "Pending", 1, 1, None)], id="the first"
        ),
        pytest.param(
            RUNNING, ENDED, [Transition("Running", "Succeeded", 93, 103, 3)], id="from its deletion to its end"
        ),
        pytest.param(
            RUNNING,
            replace(ENDED, deleted_at=0),
            [Transition("Running", "Succeeded", 93, 103, None)],
            id="one that ended by itself",
        ),
        pytest.param(RUNNING, RUNNING, [], id="nothing"),
    ],
)
def test_transitions(old: VMI, new: VMI, expected: list[Transition]) -> None:
    assert list(transitions(old, new)) == expected


def test_counts_of_a_pool(registry: CollectorRegistry, metrics: PoolMetrics) -> None:
    breaker = Healing(breaker=Breaker(open=True))
    given = PoolStatus(
        replicas=2, ready_replicas=1, updated_replicas=2, unavailable_replicas=2, kept_disks=4, healing=breaker
    )
    metrics.pool(a_pool(3), given)
    found = {
        name: value(registry, f"vmpool_{name}")
        for name in ("desired_replicas", "replicas", "ready_replicas", "updated_replicas", "unavailable_replicas")
    }
    assert list(found.values()) == [3, 2, 1, 2, 2]
    assert value(registry, "vmpool_kept_disks") == 4
    assert value(registry, "vmpool_healing_stopped") == 1
    assert value(registry, "vmpool_rollout_stalled") == 0
    stuck = Condition(type="Progressing", status="False", reason="ProgressDeadlineExceeded", message="")
    metrics.pool(a_pool(3), PoolStatus(conditions=(stuck,)))
    assert value(registry, "vmpool_rollout_stalled") == 1


def test_starts_stops_and_heals(registry: CollectorRegistry, metrics: PoolMetrics) -> None:
    started, stopped = machine(1), machine(1, exists=False, ready=False)
    assert value(registry, "vmpool_vm_starts_total") == 0, "a rate needs a first value"
    metrics.machine(None, started)
    assert value(registry, "vmpool_vm_starts_total") == 0, "first seen is not started"
    metrics.machine(stopped, started)
    metrics.machine(started, stopped)
    metrics.machine(stopped, started)
    metrics.machine(started, None)
    metrics.healed(KEY, 2)
    assert value(registry, "vmpool_vm_starts_total") == 2
    assert value(registry, "vmpool_vm_stops_total") == 2
    assert value(registry, "vmpool_heals_total") == 2


def test_vms_made_and_removed(registry: CollectorRegistry, metrics: PoolMetrics) -> None:
    assert value(registry, "vmpool_vms_created_total") == 0, "a rate needs a first value"
    metrics.scaled(KEY, created=3, deleted=1)
    assert value(registry, "vmpool_vms_created_total") == 3
    assert value(registry, "vmpool_vms_deleted_total") == 1
    metrics.gone(KEY)
    assert value(registry, "vmpool_vms_created_total") is None


def test_times_of_phases_have_the_pools_name(registry: CollectorRegistry, metrics: PoolMetrics) -> None:
    metrics.guest(KEY, PENDING, RUNNING)
    metrics.guest(KEY, RUNNING, ENDED)
    running = {"phase": "Running", "last_phase": "Scheduled"}
    assert value(registry, "vmi_phase_transition_time_seconds_sum", **running) == 6
    assert value(registry, "vmi_phase_transition_time_from_creation_seconds_sum", **running) == 10
    ended = {"phase": "Succeeded", "last_phase": "Running"}
    assert value(registry, "vmi_phase_transition_time_from_deletion_seconds_sum", **ended) == 3


@pytest.mark.parametrize("how", ["gone", "clear"])
def test_no_series_outlives_its_pool(registry: CollectorRegistry, metrics: PoolMetrics, how: str) -> None:
    metrics.guest(KEY, PENDING, RUNNING)
    metrics.gone(KEY) if how == "gone" else metrics.clear()
    # Its VMs go after it, and their events come late.
    metrics.machine(machine(1), None)
    metrics.guest(KEY, RUNNING, ENDED)
    left = [s for metric in registry.collect() for s in metric.samples if s.labels.get("vmpool")]
    assert left == []
