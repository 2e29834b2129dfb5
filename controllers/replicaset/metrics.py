"""Metrics of replica sets."""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge

from controllers.replicaset.observe import ReplicaSet
from kinds.replicaset import ReplicaSetStatus
from runtime.metrics import PREFIX
from runtime.resource import Key

LABELS = ("namespace", "vmirs")


class ReplicaSetMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{PREFIX}vmirs_{name}", text, LABELS, registry=registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"{PREFIX}vmirs_{name}_total", text, LABELS, registry=registry)

        self._desired = gauge("desired_replicas", "VMIs that the replica set should have.")
        self._replicas = gauge("replicas", "VMIs of the replica set that have not ended and are not being deleted.")
        self._ready = gauge("ready_replicas", "VMIs of the replica set that are ready.")
        self._failing = gauge("failing", "1 while the replica set's VMIs cannot be created or deleted, else 0.")
        self._created = counter("vmis_created", "VMIs that the replica set created.")
        self._deleted = counter("vmis_deleted", "VMIs that the replica set deleted.")
        self._all = (self._desired, self._replicas, self._ready, self._failing, self._created, self._deleted)

    def replica_set(self, found: ReplicaSet, status: ReplicaSetStatus) -> None:
        self._desired.labels(*found.key).set(found.spec.replicas)
        self._replicas.labels(*found.key).set(status.replicas)
        self._ready.labels(*found.key).set(status.ready_replicas)
        self._failing.labels(*found.key).set(any(c.type == "ReplicaFailure" for c in status.conditions))

    def scaled(self, key: Key, *, created: int, deleted: int) -> None:
        if created:
            self._created.labels(*key).inc(created)
        if deleted:
            self._deleted.labels(*key).inc(deleted)

    def gone(self, key: Key) -> None:
        for each in self._all:
            with suppress(KeyError):  # for a set that was never measured
                each.remove(*key)

    def clear(self) -> None:
        """This replica does not lead any more, or the CRD is KubeVirt's."""
        for each in self._all:
            each.clear()
