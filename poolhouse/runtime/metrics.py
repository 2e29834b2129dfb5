"""Metrics of the runtime library. A service makes one `Metrics` with its registry and passes it on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

if TYPE_CHECKING:
    from poolhouse.service.validity import Validity

PREFIX = "kubevirt_poolhouse_"
WAITS = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300)
CALLS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)


class Metrics:
    """The metrics of the runtime library. Without a registry they are in a private registry that nothing reads."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        if registry is not None:
            ProcessCollector(registry=registry)  # process_resident_memory_bytes, process_cpu_seconds_total, ...

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(PREFIX + name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(PREFIX + name, text, labels, buckets=buckets, registry=self.registry)

        self.requests = counter(
            "api_requests_total",
            "Requests to the API server, by verb, resource and the code of the answer (0: no answer).",
            "verb",
            "resource",
            "code",
        )
        self.request_seconds = histogram(
            "api_request_duration_seconds",
            "Time until the complete answer of the API server, without watches.",
            CALLS,
            "verb",
        )
        self.clock_offset = gauge(
            "api_clock_offset_seconds", "Seconds by which the clock of the API server is ahead of this machine's clock."
        )
        self.queue_depth = gauge("workqueue_depth", "Keys that are ready to be reconciled.", "name")
        self.queue_adds = counter("workqueue_adds_total", "Keys added to the queue, without repetitions.", "name")
        self.queue_retries = counter("workqueue_retries_total", "Keys added again after a failure.", "name")
        self.queue_seconds = histogram(
            "workqueue_wait_duration_seconds", "Time that a key waits in the queue.", WAITS, "name"
        )
        self.work_seconds = histogram("workqueue_work_duration_seconds", "Duration of one reconcile.", WAITS, "name")
        self.work_errors = counter("reconcile_errors_total", "Failed reconciles, by class of error.", "name", "error")
        self.informer_objects = gauge("informer_objects", "Objects in an informer's store.", "resource")
        self.informer_lists = counter("informer_lists_total", "Full lists, by outcome.", "resource", "outcome")
        self.informer_events = counter("informer_events_total", "Events of watches, by type.", "resource", "type")
        self.informer_contact = gauge(
            "informer_last_contact_timestamp_seconds",
            "When an informer last received an answer or an event, or when it started if it has received none. The "
            "difference to now is how stale the store may be. "
            "Only for informers that run: some run only in the leader.",
            "resource",
        )
        self.events = counter("events_total", "Events for users, by outcome (sent, dropped, refused).", "outcome")
        self.certificate_ends = gauge(
            "certificate_expiry_timestamp_seconds", "When the served certificate expires.", "file"
        )
        self.certificate_begins = gauge(
            "certificate_begin_timestamp_seconds",
            "When the validity of the served certificate begins, which may be before it was issued.",
            "file",
        )
        self.leading = gauge("leader", "1 while this process holds the lease.", "lease")

    def set_certificate(self, validity: Validity) -> None:
        self.certificate_begins.labels("tls.crt").set(validity.start.timestamp())
        self.certificate_ends.labels("tls.crt").set(validity.end.timestamp())
