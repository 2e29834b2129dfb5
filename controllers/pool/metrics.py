"""Metrics of pools (designs/1, VirtualMachinePool Metrics).

Only the leader exports metrics, and only of existing pools, so that sums over replicas and pools are correct.
"""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from controllers.pool.actions import Action, Create, Delete, Heal, Update
from controllers.pool.pools import InvalidPool, Pool
from controllers.pool.reasons import PoolReason
from controllers.shared.conditions import find_condition
from controllers.shared.metrics import ObjectMetrics
from controllers.shared.series import Histogram
from controllers.shared.vm import VM, RetainedDisk
from controllers.shared.vmi import FINAL_PHASES, VMI
from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.kinds.pool import PoolStatus
from poolhouse.runtime.metrics import PREFIX
from poolhouse.runtime.resource import Key

LABELS = ("namespace", "vmpool")
PHASES = ("phase", "last_phase")
SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
"""The API has times in whole seconds."""

GAUGES = {
    "desired_replicas": "VMs that the pool should have.",
    "replicas": "VMs of the pool, without those that are being deleted.",
    "ready_replicas": "VMs of the pool that are ready.",
    "updated_replicas": "VMs of the pool that have its current template.",
    "unavailable_replicas": "VMs of the pool that are missing or not available.",
    "held_replicas": "VMs of the pool that wait for lifecycle hooks before they are deleted or restarted.",
    "retained_disks": "Disks that the pool retained at scale-in.",
    "snapshots": "VirtualMachineSnapshots that the pool took before updates.",
    "snapshot_failing": "1 while VMs of the pool are not updated or restored because snapshots fail.",
    "rollout_stalled": "1 while the pool has exceeded progressDeadlineSeconds.",
    "update_aborted": "1 while an update is aborted, and the VMs get their former template.",
    "analysis_undecided": "1 while an update stops because the last measurement of a check was not successful.",
    "healing_stopped": "1 while healing is stopped because too many VMs of the pool fail at once.",
}


class PoolMetrics(ObjectMetrics):
    def __init__(self, registry: CollectorRegistry, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        def histogram(name: str, text: str) -> Histogram:
            name = f"{PREFIX}vmi_phase_transition_time_{name}"
            return Histogram(name, text, (*LABELS, *PHASES), registry=registry, buckets=SECONDS)

        super().__init__(registry, "vmpool", LABELS)
        self._gauges = {name: self.gauge(name, text) for name, text in GAUGES.items()}
        self._starts = self.counter("vm_starts", "VMs of the pool that started.")
        self._stops = self.counter("vm_stops", "VMs of the pool that stopped for any reason.")
        self._created = self.counter("vms_created", "VMs that the pool created.")
        self._deleted = self.counter("vms_deleted", "VMs that the pool deleted at scale-in.")
        self._heals = self.counter("heals", "VMs that healing deleted with their disks and created again.")
        self._replaced = self.counter("disks_replaced", "Disks of VMs that updates replaced by other disks.")
        self._counters = (self._starts, self._stops, self._created, self._deleted, self._heals, self._replaced)
        self._transition = histogram("seconds", "Seconds a pool's VMI spent in last_phase before it reached phase.")
        self._from_creation = histogram(
            "from_creation_seconds", "Seconds from the creation of a pool's VMI until it reached phase."
        )
        self._from_deletion = histogram(
            "from_deletion_seconds", "Seconds from the deletion of a pool's VMI until it reached its last phase."
        )
        self._histograms = (self._transition, self._from_creation, self._from_deletion)
        self._now = now
        self._known: dict[tuple[str, ...], Measured] = {}

    def follow(self, key: Key) -> None:
        """Measures the pool's VMs from now on. To be called before the pool's first write, whose VMs may start while
        other writes are still in flight."""
        if key not in self._known:
            self._known[key] = Measured(format_time(self._now()))
            for each in self._counters:
                each.labels(*key)

    def pool(self, pool: Pool, status: PoolStatus) -> None:
        breaker = status.healing.breaker if status.healing else None
        progressing = next((each.reason for each in status.conditions if each.type == "Progressing"), None)
        values = {
            "desired_replicas": pool.spec.replicas,
            "replicas": status.replicas,
            "ready_replicas": status.ready_replicas,
            "updated_replicas": status.updated_replicas,
            "unavailable_replicas": status.unavailable_replicas,
            "held_replicas": status.held_replicas,
            "retained_disks": status.retained_disks,
            "snapshots": status.snapshots,
            "snapshot_failing": find_condition(status.conditions, "SnapshotFailure", "True") is not None,
            "rollout_stalled": progressing == PoolReason.PROGRESS_DEADLINE_EXCEEDED,
            "update_aborted": progressing == PoolReason.UPDATE_ABORTED,
            "analysis_undecided": progressing == PoolReason.ANALYSIS_INCONCLUSIVE,
            "healing_stopped": breaker is not None and breaker.open,
        }
        for name, value in values.items():
            self._gauges[name].labels(*pool.key).set(value)

    def acted(self, key: Key, done: Sequence[Action]) -> None:
        kinds = Counts(map(type, done))
        self.healed(key, kinds[Heal])
        self.disks_replaced(key, sum(len(each.replacements) for each in done if isinstance(each, Update)))
        self.scaled(key, created=kinds[Create], deleted=kinds[Delete])

    def scaled(self, key: Key, *, created: int, deleted: int) -> None:
        self._created.labels(*key).inc(created)
        self._deleted.labels(*key).inc(deleted)

    def healed(self, key: Key, count: int) -> None:
        self._heals.labels(*key).inc(count)

    def disks_replaced(self, key: Key, count: int) -> None:
        self._replaced.labels(*key).inc(count)

    def vm(self, old: VM | None, new: VM | None) -> None:
        if old is None or (old.namespace, old.pool_name) not in self._known:
            return  # the VM is new, or this controller has restarted
        labels = (old.namespace, old.pool_name)
        if not old.vmi_exists and new is not None and new.vmi_exists:
            self._starts.labels(*labels).inc()
        if old.vmi_exists and (new is None or not new.vmi_exists):
            self._stops.labels(*labels).inc()

    def vmi(self, key: Key, old: VMI | None, new: VMI | None) -> None:
        measured = self._known.get(key)
        if measured is None or new is None:
            return
        if old is None or old.uid != new.uid:
            # After a watch was interrupted, the first event may show a VMI that has passed phases meanwhile. A VMI that
            # is older than the measurement was measured by the leader before.
            if new.created_at < measured.since:
                return
            old = replace(new, phase="", phase_times=())
        if old.phase == new.phase:
            return
        for each in transitions(old, new):
            labels = (*key, each.phase, each.last_phase)
            measured.phases.add((each.phase, each.last_phase))
            self._transition.labels(*labels).observe(each.seconds)
            self._from_creation.labels(*labels).observe(each.from_creation)
            if each.from_deletion is not None:
                self._from_deletion.labels(*labels).observe(each.from_deletion)

    def gone(self, labels: tuple[str, ...]) -> None:
        super().gone(labels)
        measured = self._known.pop(labels, None)
        for phases in measured.phases if measured is not None else ():
            for histogram in self._histograms:
                with suppress(KeyError):  # VMIs that ended without a deletion have no time from their deletion
                    histogram.remove(*labels, *phases)

    def clear(self) -> None:
        super().clear()
        self._known.clear()
        for each in self._histograms:
            each.clear()


@dataclass
class Measured:
    """What is measured of a pool."""

    since: str
    """time in whole seconds"""
    phases: set[tuple[str, str]] = field(default_factory=set)
    """(phase, last_phase) labels of the exported histograms"""


class Transition(NamedTuple):
    last_phase: str
    """empty for the first phase"""
    phase: str
    seconds: int
    """time in the last phase"""
    from_creation: int
    from_deletion: int | None
    """None for a VMI that ended without a deletion"""


def transitions(old: VMI, new: VMI) -> Iterator[Transition]:
    """The phases that a VMI reached between two events, including phases without an event."""
    created, deleted = _seconds(new.created_at), _seconds(new.deleted_at)
    last, since = old.phase_times[-1] if old.phase_times else ("", new.created_at)
    for phase, at in new.phase_times[len(old.phase_times) :]:
        from_deletion = _seconds(at) - deleted if phase in FINAL_PHASES and deleted else None
        yield Transition(last, phase, _seconds(at) - _seconds(since), _seconds(at) - created, from_deletion)
        last, since = phase, at


def _seconds(time: str) -> int:
    return int(parse_time(time).timestamp()) if time else 0


class OrphanedDisks:
    """Counts retained disks of deleted pools. Such disks use storage, and only users may delete them.

    This Prometheus collector reads the stores. Every replica exports the same number: use the maximum over the
    replicas, not the sum."""

    def __init__(self, pools: Iterable[Pool | InvalidPool] = (), disks: Iterable[RetainedDisk] = ()) -> None:
        self._pools, self._disks = pools, disks

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            f"{PREFIX}orphaned_disks",
            "Retained disks of pools that are gone, as each replica sees it.",
            labels=["namespace"],
        )
        for namespace, number in sorted(count_orphans(self._pools, self._disks).items()):
            family.add_metric([namespace], number)
        yield family


def count_orphans(pools: Iterable[Pool | InvalidPool], disks: Iterable[RetainedDisk]) -> Counts[str]:
    known = {pool.uid for pool in pools}
    return Counts(disk.namespace for disk in disks if disk.retained_by not in known)
