"""Metrics of migration policies."""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge

from kinds.migrationpolicy import MigrationPolicyStatus
from runtime.metrics import PREFIX


class PolicyMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, documentation: str) -> Gauge:
            return Gauge(f"{PREFIX}migration_policy_{name}", documentation, ("policy",), registry=registry)

        def counter(name: str, documentation: str) -> Counter:
            return Counter(f"{PREFIX}migration_policy_{name}_total", documentation, registry=registry)

        self._wins = gauge("wins", "VMIs that use the policy.")
        self._losses = gauge("losses", "VMIs that match the policy and use another.")
        self._enforced = gauge("enforced", "1 while KubeVirt applies the policy.")
        self.labels = counter("stamps", "Labels of VMIs that were written or removed.")
        self.repairs = counter("repairs", "Repairs of KubeVirt's policies after a foreign change.")
        self._gauges = (self._wins, self._losses, self._enforced)

    def update(self, name: str, status: MigrationPolicyStatus) -> None:
        self._wins.labels(name).set(status.wins)
        self._losses.labels(name).set(status.losses)
        enforced = any(each.type == "Enforced" and each.status == "True" for each in status.conditions)
        self._enforced.labels(name).set(enforced)

    def remove(self, name: str) -> None:
        for gauge in self._gauges:
            with suppress(KeyError):  # a policy without a status has no series
                gauge.remove(name)

    def clear(self) -> None:
        """Another replica leads and reports these series."""
        for gauge in self._gauges:
            gauge.clear()
