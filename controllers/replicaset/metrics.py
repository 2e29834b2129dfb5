"""Metrics of replica sets."""

from prometheus_client import CollectorRegistry

from controllers.replicaset.observe import ReplicaSet
from controllers.shared.metrics import ObjectMetrics
from poolhouse.api.kinds.replicaset import ReplicaSetStatus
from poolhouse.runtime.resource import Key


class ReplicaSetMetrics(ObjectMetrics):
    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry, "vmirs", ("namespace", "vmirs"))
        self._desired = self.gauge("desired_replicas", "VMIs that the replica set should have.")
        self._replicas = self.gauge(
            "replicas", "VMIs of the replica set that have not ended and are not being deleted."
        )
        self._ready = self.gauge("ready_replicas", "VMIs of the replica set that are ready.")
        self._failing = self.gauge("failing", "1 while the replica set's VMIs cannot be created or deleted, else 0.")
        self._created = self.counter("vmis_created", "VMIs that the replica set created.")
        self._deleted = self.counter("vmis_deleted", "VMIs that the replica set deleted.")

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
