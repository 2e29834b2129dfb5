"""Metrics of the service. Each scrape also reads the counts of the worker pool."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from defaulter.worker_pool import WorkerPool

_BUCKETS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)


class Metrics:
    def __init__(self, workers: WorkerPool) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(_Pool(workers))
        self.requests = Counter(
            "kubevirt_poolhouse_defaulter_requests_total",
            "Requests to complete a virtual machine, by HTTP status.",
            ["status"],
            registry=self.registry,
        )
        self.duration = Histogram(
            "kubevirt_poolhouse_defaulter_request_duration_seconds",
            "Time from a whole request's arrival to its answer, waiting for a worker included.",
            buckets=_BUCKETS,
            registry=self.registry,
        )


class _Pool(Collector):
    def __init__(self, workers: WorkerPool) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        prefix = "kubevirt_poolhouse_defaulter"
        yield GaugeMetricFamily(
            f"{prefix}_workers_ready", "Worker processes that can answer.", value=self._workers.counts.ready
        )
        yield GaugeMetricFamily(
            f"{prefix}_workers_spare",
            "Worker processes that are ready to replace one that ends.",
            value=self._workers.counts.spare,
        )
        yield GaugeMetricFamily(
            f"{prefix}_requests_waiting", "Requests that wait for a worker.", value=self._workers.queue_length()
        )
        restarts = CounterMetricFamily(
            f"{prefix}_worker_replacements", "Worker processes replaced, by reason.", labels=["reason"]
        )
        for reason, count in self._workers.counts.restarts.items():
            restarts.add_metric([reason.replace(" ", "_")], count)
        yield restarts
