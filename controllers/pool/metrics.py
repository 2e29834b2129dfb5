"""What a pool measures (designs/1, VirtualMachinePool Metrics)."""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge

from controllers.pool.machine import Machine
from controllers.pool.state import Pool
from kinds.pool import PoolStatus
from runtime.metrics import PREFIX
from runtime.resource import Key

LABELS = ("namespace", "vmpool")


class PoolMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{PREFIX}vmpool_{name}", text, LABELS, registry=registry)

        self._gauges = {
            "desired_replicas": gauge("desired_replicas", "VMs that the pool should have."),
            "replicas": gauge("replicas", "VMs that the pool has."),
            "ready_replicas": gauge("ready_replicas", "VMs that are ready."),
            "updated_replicas": gauge("updated_replicas", "VMs that have the current template."),
            "unavailable_replicas": gauge("unavailable_replicas", "VMs that are missing or not available."),
        }
        self._starts = Counter(f"{PREFIX}vmpool_vm_starts_total", "VMs that started.", LABELS, registry=registry)
        self._stops = Counter(f"{PREFIX}vmpool_vm_stops_total", "VMs that stopped.", LABELS, registry=registry)

    def pool(self, pool: Pool, status: PoolStatus) -> None:
        values = {
            "desired_replicas": pool.spec.replicas,
            "replicas": status.replicas,
            "ready_replicas": status.ready_replicas,
            "updated_replicas": status.updated_replicas,
            "unavailable_replicas": status.unavailable_replicas,
        }
        for name, value in values.items():
            self._gauges[name].labels(*pool.key).set(value)

    def machine(self, old: Machine | None, new: Machine | None) -> None:
        if old is None or not old.owner_name:
            return  # first sight of it, perhaps after a restart of ours: nothing is known to have changed
        labels = (old.namespace, old.owner_name)
        if not old.exists and new is not None and new.exists:
            self._starts.labels(*labels).inc()
        if old.exists and (new is None or not new.exists):
            self._stops.labels(*labels).inc()

    def gone(self, key: Key) -> None:
        for each in (*self._gauges.values(), self._starts, self._stops):
            # It has none for a pool that was never counted.
            with suppress(KeyError):
                each.remove(*key)
