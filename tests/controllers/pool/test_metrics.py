"""What a scrape finds: every series of a pool while it is there, and none of them after."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.pool.metrics import OrphanedDisks, PoolMetrics, Transition, count_orphans, transitions
from controllers.shared.vm import RetainedDisk
from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.pool import Breaker, Healing, PoolStatus
from tests.controllers.pool.builders import a_pool, ago, vm

POOL = {"namespace": "default", "vmpool": "web"}
KEY = ("default", "web")


def at(seconds: float) -> str:
    return ago(1000 - seconds)


PENDING = VMI("default", "web-1", "run", phase="Pending", created_at=at(100), phase_times=(("Pending", at(101)),))
RUNNING = replace(
    PENDING, phase="Running", phase_times=(("Pending", at(101)), ("Scheduled", at(104)), ("Running", at(110)))
)
ENDED = replace(
    RUNNING, phase="Succeeded", deleted_at=at(200), phase_times=(*RUNNING.phase_times, ("Succeeded", at(203)))
)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> PoolMetrics:
    found = PoolMetrics(registry, lambda: parse_time(at(50)))
    found.follow(KEY)
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
            replace(PENDING, phase="", phase_times=()), PENDING, [Transition("", "Pending", 1, 1, None)], id="the first"
        ),
        pytest.param(
            RUNNING, ENDED, [Transition("Running", "Succeeded", 93, 103, 3)], id="from its deletion to its end"
        ),
        pytest.param(
            RUNNING,
            replace(ENDED, deleted_at=""),
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
        replicas=2, ready_replicas=1, updated_replicas=2, unavailable_replicas=2, retained_disks=4, healing=breaker
    )
    metrics.pool(a_pool(3), given)
    found = {
        name: value(registry, f"vmpool_{name}")
        for name in ("desired_replicas", "replicas", "ready_replicas", "updated_replicas", "unavailable_replicas")
    }
    assert list(found.values()) == [3, 2, 1, 2, 2]
    assert value(registry, "vmpool_retained_disks") == 4
    assert value(registry, "vmpool_healing_stopped") == 1
    assert value(registry, "vmpool_rollout_stalled") == 0


@pytest.mark.parametrize(
    ("reason", "gauge"),
    [
        ("ProgressDeadlineExceeded", "rollout_stalled"),
        ("UpdateAborted", "update_aborted"),
        ("AnalysisInconclusive", "analysis_undecided"),
    ],
)
def test_an_update_that_does_not_go_on(
    registry: CollectorRegistry, metrics: PoolMetrics, reason: str, gauge: str
) -> None:
    assert value(registry, f"vmpool_{gauge}") == 0
    stuck = Condition(type="Progressing", status="False", reason=reason, message="")
    metrics.pool(a_pool(3), PoolStatus(conditions=(stuck,)))
    assert value(registry, f"vmpool_{gauge}") == 1


@pytest.mark.sentence("1.50", "1.51")
def test_starts_stops_and_heals(registry: CollectorRegistry, metrics: PoolMetrics) -> None:
    started, stopped = vm(1), vm(1, vmi_exists=False, ready=False)
    assert value(registry, "vmpool_vm_starts_total") == 0, "a rate needs a first value"
    metrics.vm(None, started)
    assert value(registry, "vmpool_vm_starts_total") == 0, "first seen is not started"
    metrics.vm(stopped, started)
    metrics.vm(started, stopped)
    metrics.vm(stopped, started)
    metrics.vm(started, None)
    metrics.healed(KEY, 2)
    assert value(registry, "vmpool_vm_starts_total") == 2
    assert value(registry, "vmpool_vm_stops_total") == 2
    assert value(registry, "vmpool_heals_total") == 2


def test_created_and_deleted_vms_are_counted(registry: CollectorRegistry, metrics: PoolMetrics) -> None:
    assert value(registry, "vmpool_vms_created_total") == 0, "a rate needs a first value"
    metrics.scaled(KEY, created=3, deleted=1)
    assert value(registry, "vmpool_vms_created_total") == 3
    assert value(registry, "vmpool_vms_deleted_total") == 1
    metrics.gone(KEY)
    assert value(registry, "vmpool_vms_created_total") is None


@pytest.mark.sentence("1.52")
def test_phase_histograms_have_the_labels_of_the_pool(registry: CollectorRegistry, metrics: PoolMetrics) -> None:
    metrics.vmi(KEY, PENDING, RUNNING)
    metrics.vmi(KEY, RUNNING, ENDED)
    running = {"phase": "Running", "last_phase": "Scheduled"}
    assert value(registry, "vmi_phase_transition_time_seconds_sum", **running) == 6
    assert value(registry, "vmi_phase_transition_time_from_creation_seconds_sum", **running) == 10
    ended = {"phase": "Succeeded", "last_phase": "Running"}
    assert value(registry, "vmi_phase_transition_time_from_deletion_seconds_sum", **ended) == 3


@pytest.mark.parametrize(
    ("new", "seconds"),
    [
        pytest.param(RUNNING, 10, id="first seen when it runs"),
        pytest.param(replace(RUNNING, created_at=at(49)), None, id="it is older than the measurement"),
        pytest.param(replace(RUNNING, uid="other"), 10, id="another VMI of the name"),
    ],
)
@pytest.mark.parametrize("old", [None, replace(RUNNING, uid="before")])
def test_a_vmi_that_an_interrupted_watch_shows_late_is_counted(
    registry: CollectorRegistry, metrics: PoolMetrics, old: VMI | None, new: VMI, seconds: int | None
) -> None:
    metrics.vmi(KEY, old, new)
    running = {"phase": "Running", "last_phase": "Scheduled"}
    assert value(registry, "vmi_phase_transition_time_from_creation_seconds_sum", **running) == seconds


@pytest.mark.parametrize("how", ["gone", "clear"])
def test_no_series_outlives_its_pool(registry: CollectorRegistry, metrics: PoolMetrics, how: str) -> None:
    metrics.vmi(KEY, PENDING, RUNNING)
    metrics.gone(KEY) if how == "gone" else metrics.clear()
    # Its VMs go after it, and their events come late.
    metrics.vm(vm(1), None)
    metrics.vmi(KEY, RUNNING, ENDED)
    left = [s for metric in registry.collect() for s in metric.samples if s.labels.get("vmpool")]
    assert left == []


def pool(uid: str) -> Any:
    return SimpleNamespace(uid=uid)


def disk(name: str, retained_by: str, namespace: str = "a") -> RetainedDisk:
    return RetainedDisk(namespace, name, retained_by, "web-1")


@pytest.mark.parametrize(
    ("pools", "disks", "found"),
    [
        pytest.param([], [], {}, id="nothing at all"),
        pytest.param([pool("1")], [disk("d", "1")], {}, id="its pool may want it back"),
        pytest.param([pool("2")], [disk("d", "1")], {"a": 1}, id="a new pool of the same name is another"),
        pytest.param([], [disk("d", "1"), disk("e", "1"), disk("d", "1", "b")], {"a": 2, "b": 1}, id="by namespace"),
        pytest.param([], [disk("d", "")], {"a": 1}, id="nobody says whose it was"),
    ],
)
def test_count_orphans(pools: list[Any], disks: list[RetainedDisk], found: dict[str, int]) -> None:
    assert count_orphans(pools, disks) == found


def test_orphaned_disks_are_counted_at_every_scrape() -> None:
    registry, disks = CollectorRegistry(), [disk("d", "1")]
    registry.register(OrphanedDisks([], disks))
    name, labels = "kubevirt_poolhouse_orphaned_disks", {"namespace": "a"}
    assert registry.get_sample_value(name, labels) == 1
    disks.clear()
    assert registry.get_sample_value(name, labels) is None
