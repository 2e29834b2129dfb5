"""Metrics of admission."""

from collections.abc import Callable, Collection, Iterable
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from defaulter.contract import COMPONENTS, Newer, ShapeResult
from poolhouse.api.apimachinery.reasons import Reason
from poolhouse.runtime.circuit_breaker import CircuitState
from webhook.reasons import AdmissionReason, DriftReason, FailOpenReason
from webhook.review import AdmissionRequest, AdmissionResponse

PREFIX = "kubevirt_poolhouse_admission_"
# Buckets around 3 s, the timeout of the defaulting webhook.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5)

BREAKER_STATES: dict[CircuitState, int] = {"closed": 0, "probing": 1, "open": 2}


class Metrics:
    def __init__(self, registry: CollectorRegistry, kinds: Collection[str]) -> None:
        """Each of `kinds` has its own series. All other kinds share a series, because a client can send any name."""
        self.registry = registry
        self._kinds = frozenset(kinds)
        self.seconds = Histogram(
            PREFIX + "duration_seconds",
            "Time to answer an admission request, by entry (mutate, validate), kind and result (allowed, denied, "
            "skipped, fail_open).",
            ("entry", "kind", "result"),
            buckets=SECONDS,
            registry=registry,
        )
        self.fail_open = self._by_reason(
            "fail_open_total", "VMs and VMIs that were admitted with undefaulted hardware, by reason.", FailOpenReason
        )
        self.strict_refusals = self._by_reason(
            "strict_refusals_total",
            "VMs and VMIs that strict defaulting refused because they could not get their defaults, by reason.",
            FailOpenReason,
        )
        self.drift = self._by_reason(
            "hardware_changed_later_total",
            "VMs and VMIs whose hardware another webhook changed (HardwareChanged) or left without a default "
            "(HardwareUndefaulted) after defaulting, by reason. Poolhouse's webhook must be called last.",
            DriftReason,
        )
        self.newer = Gauge(
            PREFIX + "defaulter_newer_than_nodes",
            "Whether the defaulter's libvirt or QEMU is newer than that of a node, by component: 1 newer, 0 not newer, "
            "-1 unknown, because the defaulter does not answer.",
            ("component",),
            registry=registry,
        )
        self.versions(None)
        self.shapes = Counter(
            PREFIX + "shapes_total",
            "New VMs and VMIs that were defaulted, by result: the answer for the shape was remembered (known), the "
            "defaulter was asked and its answer is remembered now (learned), or it cannot be remembered "
            "(not_repeatable).",
            ("result",),
            registry=registry,
        )
        for each in get_args(ShapeResult):
            self.shapes.labels(each)
        self.unreadable = Counter(
            PREFIX + "unreadable_requests_total",
            "Requests refused before their content was examined, by path and status code.",
            ("path", "code"),
            registry=registry,
        )
        self.questions = Histogram(
            PREFIX + "question_duration_seconds",
            "Time to answer a request of a person or program (dryrun, explain), by entry and status code.",
            ("entry", "code"),
            buckets=SECONDS,
            registry=registry,
        )

    def _by_reason(self, name: str, text: str, reasons: Iterable[Reason]) -> Counter:
        counter = Counter(PREFIX + name, text, ("reason",), registry=self.registry)
        for reason in reasons:
            counter.labels(reason)
        return counter

    def breaker(self, state: Callable[[], CircuitState]) -> None:
        gauge = Gauge(
            PREFIX + "defaulter_breaker_state",
            "The circuit breaker of calls to the defaulter: 0 closed, 1 probing with one call, 2 open.",
            registry=self.registry,
        )
        gauge.set_function(lambda: BREAKER_STATES[state()])

    def versions(self, newer: Collection[Newer] | None) -> None:
        """Sets which components of the defaulter are newer than those of the nodes. None: that is unknown."""
        for component in COMPONENTS:
            known = -1 if newer is None else int(any(each.component == component for each in newer))
            self.newer.labels(component).set(known)

    def shape(self, result: ShapeResult) -> None:
        self.shapes.labels(result).inc()

    def reviewed(self, entry: str, request: AdmissionRequest, response: AdmissionResponse, seconds: float) -> None:
        if isinstance(response.reason, FailOpenReason):
            (self.strict_refusals if response.problems else self.fail_open).labels(response.reason).inc()
        if response.drift is not None:
            self.drift.labels(response.drift).inc()
        kind = request.kind if request.kind in self._kinds else "other"
        self.seconds.labels(entry, kind, result(response)).observe(seconds)


def result(response: AdmissionResponse) -> str:
    if response.problems:
        return "denied"
    if isinstance(response.reason, FailOpenReason):
        return "fail_open"
    return "skipped" if response.reason is AdmissionReason.SKIPPED else "allowed"
