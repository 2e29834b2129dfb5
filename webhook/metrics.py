"""What admission measures. One `Metrics` for the service, its registry given."""

from __future__ import annotations

from collections.abc import Callable, Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from runtime.circuit_breaker import CircuitState
from webhook.defaulting import FAIL_OPEN
from webhook.hardware_drift import NEWS
from webhook.review import SKIPPED, AdmissionRequest, AdmissionResponse

PREFIX = "kubevirt_poolhouse_admission_"
# The webhook's own timeout is 3 s; what matters lies between a few milliseconds and that.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5)

STATES: dict[CircuitState, int] = {"closed": 0, "probing": 1, "open": 2}


class Metrics:
    def __init__(self, registry: CollectorRegistry, kinds: Collection[str]) -> None:
        """`kinds` become series; others are counted as one, because whoever reaches the port may name any."""
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
        self.fail_open = Counter(
            PREFIX + "fail_open_total",
            "VMs and VMIs that were let through with hardware undecided, by reason.",
            ("reason",),
            registry=registry,
        )
        for reason in FAIL_OPEN:
            self.fail_open.labels(reason)
        self.late = Counter(
            PREFIX + "hardware_changed_later_total",
            "VMs and VMIs whose hardware another webhook changed or left open after we had decided it, by which of the "
            "two (ChangedLater, OpenedLater). Our webhook is meant to be asked last.",
            ("reason",),
            registry=registry,
        )
        for reason in NEWS:
            self.late.labels(reason)
        self.unreadable = Counter(
            PREFIX + "unreadable_requests_total",
            "Requests refused before anybody looked at what they say, by the status they got.",
            ("path", "code"),
            registry=registry,
        )
        self.questions = Histogram(
            PREFIX + "question_duration_seconds",
            "Time to answer a person or their program (dryrun, ...), by the status it got.",
            ("entry", "code"),
            buckets=SECONDS,
            registry=registry,
        )

    def breaker(self, state: Callable[[], CircuitState]) -> None:
        gauge = Gauge(
            PREFIX + "defaulter_breaker_state",
            "Whether the defaulter is asked: 0 always (closed), 1 once, to see (probing), 2 not now (open).",
            registry=self.registry,
        )
        gauge.set_function(lambda: STATES[state()])

    def reviewed(self, entry: str, request: AdmissionRequest, verdict: AdmissionResponse, seconds: float) -> None:
        if verdict.reason in FAIL_OPEN:
            self.fail_open.labels(verdict.reason).inc()
        if verdict.reason in NEWS:
            self.late.labels(verdict.reason).inc()
        kind = request.kind if request.kind in self._kinds else "other"
        self.seconds.labels(entry, kind, result(verdict)).observe(seconds)


def result(verdict: AdmissionResponse) -> str:
    if verdict.problems:
        return "denied"
    if verdict.reason in FAIL_OPEN:
        return "fail_open"
    return "skipped" if verdict.reason == SKIPPED else "allowed"
