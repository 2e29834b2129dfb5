"""What a pool measures (designs/1, VirtualMachinePool Metrics).

Only the replica that leads measures, and only pools that are there: what a sum over replicas and pools says is true.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controllers.pool.guest import VMI, transitions
from controllers.pool.machine import VM
from controllers.pool.progress import STALLED
from controllers.pool.snapshot import Pool
from kinds.pool import PoolStatus
from runtime.metrics import PREFIX
from runtime.resource import Key

LABELS = ("namespace", "vmpool")
PHASES = ("phase", "last_phase")
SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
"""times of VMs are given by the API in whole seconds"""


class PoolMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{PREFIX}vmpool_{name}", text, LABELS, registry=registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"{PREFIX}vmpool_{name}_total", text, LABELS, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            name = f"{PREFIX}vmi_phase_transition_time_{name}"
            return Histogram(name, text, (*LABELS, *PHASES), registry=registry, buckets=SECONDS)

        self._gauges = {
            "desired_replicas": gauge("desired_replicas", "VMs that the pool should have."),
            "replicas": gauge("replicas", "VMs that the pool has, those being deleted left out."),
            "ready_replicas": gauge("ready_replicas", "VMs of the pool that are ready."),
            "updated_replicas": gauge("updated_replicas", "VMs of the pool that have its current template."),
            "unavailable_replicas": gauge("unavailable_replicas", "VMs of the pool that are missing or not available."),
            "kept_disks": gauge("kept_disks", "Disks that scale-in has kept for VMs that come back."),
            "rollout_stalled": gauge(
                "rollout_stalled", "1 while the pool has not come nearer to its spec for progressDeadlineSeconds."
            ),
            "healing_stopped": gauge(
                "healing_stopped", "1 while healing is stopped because too many VMs of the pool fail at once."
            ),
        }
        self._starts = counter("vm_starts", "VMs of the pool that started.")
        self._stops = counter("vm_stops", "VMs of the pool that stopped, for whatever reason.")
        self._created = counter("vms_created", "VMs that were created for the pool, to grow or in place of others.")
        self._deleted = counter("vms_deleted", "VMs that were deleted for the pool to shrink, healed ones left out.")
        self._heals = counter("heals", "VMs that were deleted with their disks and made again as they kept failing.")
        self._counters = (self._starts, self._stops, self._created, self._deleted, self._heals)
        self._transition = histogram("seconds", "Seconds a pool's VMI spent in last_phase before it reached phase.")
        self._from_creation = histogram(
            "from_creation_seconds", "Seconds from the creation of a pool's VMI until it reached phase."
        )
        self._from_deletion = histogram(
            "from_deletion_seconds", "Seconds from the deletion of a pool's VMI until it reached its last phase."
        )
        self._histograms = (self._transition, self._from_creation, self._from_deletion)
        self._known: dict[Key, set[tuple[str, str]]] = {}
        """pools that are there, and the (phase, last_phase) that were measured for each"""

    def pool(self, pool: Pool, status: PoolStatus) -> None:
        self._known.setdefault(pool.key, set())
        breaker = status.healing.breaker if status.healing else None
        values = {
            "desired_replicas": pool.spec.replicas,
            "replicas": status.replicas,
            "ready_replicas": status.ready_replicas,
            "updated_replicas": status.updated_replicas,
            "unavailable_replicas": status.unavailable_replicas,
            "kept_disks": status.kept_disks,
            "rollout_stalled": any(each.type == "Progressing" and each.reason == STALLED for each in status.conditions),
            "healing_stopped": breaker is not None and breaker.open,
        }
        for name, value in values.items():
            self._gauges[name].labels(*pool.key).set(value)
        for each in self._counters:
            each.labels(*pool.key)  # a rate wants to see the first one, and so a 0 before it

    def scaled(self, key: Key, *, created: int, deleted: int) -> None:
        self._created.labels(*key).inc(created)
        self._deleted.labels(*key).inc(deleted)

    def healed(self, key: Key, count: int) -> None:
        self._heals.labels(*key).inc(count)

    def machine(self, old: VM | None, new: VM | None) -> None:
        if old is None or (old.namespace, old.owner_name) not in self._known:
            return  # first sight of it, perhaps after a restart of ours: nothing is known to have changed
        labels = (old.namespace, old.owner_name)
        if not old.exists and new is not None and new.exists:
            self._starts.labels(*labels).inc()
        if old.exists and (new is None or not new.exists):
            self._stops.labels(*labels).inc()

    def guest(self, key: Key, old: VMI | None, new: VMI | None) -> None:
        """`key` is that of its pool."""
        measured = self._known.get(key)
        if measured is None or old is None or new is None or old.uid != new.uid or old.phase == new.phase:
            return
        for each in transitions(old, new):
            labels = (*key, each.phase, each.last_phase)
            measured.add((each.phase, each.last_phase))
            self._transition.labels(*labels).observe(each.seconds)
            self._from_creation.labels(*labels).observe(each.from_creation)
            if each.from_deletion is not None:
                self._from_deletion.labels(*labels).observe(each.from_deletion)

    def gone(self, key: Key) -> None:
        for phases in self._known.pop(key, ()):
            for histogram in self._histograms:
                _remove(histogram, *key, *phases)
        for each in (*self._gauges.values(), *self._counters):
            _remove(each, *key)

    def clear(self) -> None:
        """We don't lead any more: another replica measures."""
        self._known.clear()
        for each in (*self._gauges.values(), *self._counters, *self._histograms):
            each.clear()


def _remove(metric: Any, *labels: str) -> None:
    try:
        metric.remove(*labels)
    except KeyError:
        return  # nothing was ever measured with these
