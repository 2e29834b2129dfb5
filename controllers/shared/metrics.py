"""Metrics of the objects of a kind. The metrics of an object end with the object."""

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge

from runtime.metrics import PREFIX
from runtime.resource import Key


class ObjectMetrics:
    """Gauges and counters with the namespace and the name of an object as labels."""

    def __init__(self, registry: CollectorRegistry, kind: str) -> None:
        self._registry, self._kind, self.labels = registry, kind, ("namespace", kind)
        self._of_objects: list[Gauge | Counter] = []

    def gauge(self, name: str, text: str) -> Gauge:
        found = Gauge(f"{PREFIX}{self._kind}_{name}", text, self.labels, registry=self._registry)
        self._of_objects.append(found)
        return found

    def counter(self, name: str, text: str) -> Counter:
        found = Counter(f"{PREFIX}{self._kind}_{name}_total", text, self.labels, registry=self._registry)
        self._of_objects.append(found)
        return found

    def gone(self, key: Key) -> None:
        """Removes the metrics of an object that does not exist any more."""
        for each in self._of_objects:
            with suppress(KeyError):  # the object has no such metric
                each.remove(*key)

    def clear(self) -> None:
        """Removes all metrics of objects when this replica is no longer the leader."""
        for each in self._of_objects:
            each.clear()
