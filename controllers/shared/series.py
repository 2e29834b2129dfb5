"""Metrics with the names of objects as labels, whose number a tenant chooses.

Each metric exports at most `MAX_SERIES` series of a namespace, and the sum of the others as one: a namespace with
thousands of objects makes no scrape too large. A value is a number in a dict, so that a scrape of thousands of objects
costs little. A scrape may run in another thread than the changes: it copies each dict in one step of the interpreter.
"""

from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, Literal, Self, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

V = TypeVar("V")
Labels = tuple[str, ...]

MAX_SERIES = 500
"""of a metric in a namespace; a histogram with its buckets counts as one"""
OTHERS = "(others)"
"""The labels of the sum, apart from its namespace. No object has this name."""
INFINITY = "+Inf"


class Series(Generic[V]):
    """The values of a metric by their labels. The first label must be the namespace for a limit to apply."""

    type: Literal["gauge", "counter", "histogram"]

    def __init__(self, name: str, text: str, labels: Sequence[str], *, registry: CollectorRegistry) -> None:
        self.name, self.text, self.label_names = name, text, tuple(labels)
        self._limited = self.label_names[0] == "namespace"
        self._values: dict[Labels, V] = {}
        self._sums: dict[str, V] = {}
        """the exported sums, by namespace"""
        registry.register(self)

    def remove(self, *labels: str) -> None:
        """Removes a value. Raises KeyError if there is none."""
        del self._values[labels]

    def clear(self) -> None:
        self._values.clear()

    def collect(self) -> Iterator[Metric]:
        family = Metric(self.name, self.text, self.type)
        for labels, value in self._exported():
            self._add(family, dict(zip(self.label_names, labels, strict=True)), value)
        yield family

    def _exported(self) -> Iterator[tuple[Labels, V]]:
        """The oldest values of each namespace up to the limit, then the sums of the others."""
        shown: Counts[str] = Counts()
        rest: dict[str, list[V]] = {}
        for labels, value in self._values.copy().items():
            namespace = labels[0]
            if not self._limited or shown[namespace] < MAX_SERIES:
                shown[namespace] += 1
                yield labels, value
            else:
                rest.setdefault(namespace, []).append(value)
        self._sums = {namespace: self._sum(values, self._sums.get(namespace)) for namespace, values in rest.items()}
        for namespace, value in self._sums.items():
            yield self._of_others(namespace), value

    def _of_others(self, namespace: str) -> Labels:
        return (namespace, *(OTHERS for _ in self.label_names[1:]))

    def _sum(self, values: Iterable[V], before: V | None) -> V:
        """The sum to export. `before` is the last one."""
        raise NotImplementedError

    def _add(self, family: Metric, labels: dict[str, str], value: V) -> None:
        raise NotImplementedError


class _Cell:
    """One value of a gauge or a counter."""

    __slots__ = ("_labels", "_values")

    def __init__(self, values: dict[Labels, float], labels: Labels) -> None:
        self._values, self._labels = values, labels

    def set(self, value: float) -> None:
        self._values[self._labels] = float(value)

    def inc(self, amount: float = 1.0) -> None:
        self._values[self._labels] = self._values.get(self._labels, 0.0) + amount


class Gauge(Series[float]):
    type = "gauge"

    def labels(self, *labels: str) -> _Cell:
        return _Cell(self._values, labels)

    def _sum(self, values: Iterable[float], before: float | None) -> float:
        return sum(values)

    def _add(self, family: Metric, labels: dict[str, str], value: float) -> None:
        family.add_sample(self.name, labels, value)


class Counter(Series[float]):
    type = "counter"

    def __init__(
        self, name: str, text: str, labels: Sequence[str], *, registry: CollectorRegistry, lasting: bool = False
    ) -> None:
        """`lasting`: no value is ever removed, so those above the limit are not kept one by one."""
        super().__init__(name.removesuffix("_total"), text, labels, registry=registry)
        self._lasting = lasting
        self._kept: Counts[str] = Counts()

    def labels(self, *labels: str) -> _Cell:
        """The counter begins with 0 here, because a rate needs a first value."""
        if labels not in self._values:
            if self._lasting and self._kept[labels[0]] >= MAX_SERIES:
                labels = self._of_others(labels[0])
            else:
                self._kept[labels[0]] += 1
            self._values.setdefault(labels, 0.0)
        return _Cell(self._values, labels)

    def _sum(self, values: Iterable[float], before: float | None) -> float:
        # An object that is gone would make the sum smaller. Prometheus would take the whole sum for an increase.
        return max(sum(values), before or 0.0)

    def _add(self, family: Metric, labels: dict[str, str], value: float) -> None:
        family.add_sample(f"{self.name}_total", labels, value)


class _Distribution:
    """How many observations are in each bucket, which are not cumulative, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self.total, self.counts = bounds, 0.0, [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def plus(self, other: Self) -> Self:
        found = type(self)(self._bounds)
        found.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        found.total = self.total + other.total
        return found


class Histogram(Series[_Distribution]):
    type = "histogram"

    def __init__(
        self, name: str, text: str, labels: Sequence[str], *, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        super().__init__(name, text, labels, registry=registry)
        self._bounds = tuple(map(float, buckets))

    def labels(self, *labels: str) -> _Distribution:
        found = self._values.get(labels)
        if found is None:
            found = self._values[labels] = _Distribution(self._bounds)
        return found

    def _sum(self, values: Iterable[_Distribution], before: _Distribution | None) -> _Distribution:
        found = _Distribution(self._bounds)
        for each in values:
            found = found.plus(each)
        if before is not None:  # as for a counter
            found.counts = [max(pair) for pair in zip(found.counts, before.counts, strict=True)]
            found.total = max(found.total, before.total)
        return found

    def _add(self, family: Metric, labels: dict[str, str], value: _Distribution) -> None:
        counts = list(accumulate(value.counts))
        for bound, count in zip((*map(str, self._bounds), INFINITY), counts, strict=True):
            family.add_sample(f"{self.name}_bucket", labels | {"le": bound}, count)
        family.add_sample(f"{self.name}_count", labels, counts[-1])
        family.add_sample(f"{self.name}_sum", labels, value.total)
