"""Metrics of the objects of a kind. The metrics of an object end with the object."""

from collections.abc import Sequence
from contextlib import suppress

from prometheus_client import CollectorRegistry

from controllers.shared.series import Counter, Gauge
from poolhouse.runtime.metrics import PREFIX


class ObjectMetrics:
    """Gauges and counters with the name of an object as labels."""

    def __init__(self, registry: CollectorRegistry, prefix: str, labels: Sequence[str]) -> None:
        self._registry, self._prefix, self._labels = registry, f"{PREFIX}{prefix}_", labels
        self._of_objects: list[Gauge | Counter] = []

    def gauge(self, name: str, text: str) -> Gauge:
        found = Gauge(self._prefix + name, text, self._labels, registry=self._registry)
        self._of_objects.append(found)
        return found

    def counter(self, name: str, text: str) -> Counter:
        found = Counter(f"{self._prefix}{name}_total", text, self._labels, registry=self._registry)
        self._of_objects.append(found)
        return found

    def gone(self, labels: tuple[str, ...]) -> None:
        """Removes the metrics of an object that does not exist any more."""
        for each in self._of_objects:
            with suppress(KeyError):  # the object has no such metric
                each.remove(*labels)

    def clear(self) -> None:
        """Removes all metrics of objects when this replica is no longer the leader."""
        for each in self._of_objects:
            each.clear()
