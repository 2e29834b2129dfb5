"""What warm pools measure."""

from __future__ import annotations

from collections import Counter as Tally
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.warm_vm import WarmVM
from kinds.warm_states import WarmState
from kinds.warmpool import WarmPoolStatus
from runtime.metrics import PREFIX
from runtime.resource import Key

POOL = ("namespace", "warmpool")
REFILLS = (0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280)


class WarmPoolMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{PREFIX}warmpool_{name}", text, (*POOL, *labels), registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{PREFIX}warmpool_{name}", text, (*POOL, *labels), registry=registry)

        self.vms = gauge("vms", "Machines of a warm pool.", "state", "standby", "placement")
        self.desired = gauge(
            "desired", "Machines that should be ready to be claimed, those for queued claims included."
        )
        self.available = gauge("available", "Machines that a claim would get now.")
        self.queued = gauge("queued_claims", "Claims that wait for a machine of the pool.")
        self.breaker = gauge(
            "breaker_open", "1 while so many machines fail that no more are made but one now and then."
        )
        self.orphans = gauge("orphans", "Machines that the pool has left to themselves.")
        self.orphaned = counter(
            "orphaned_total", "Machines that were left to themselves, also of pools that are gone, by reason.", "reason"
        )
        self.stalled = gauge("rollout_stalled", "1 while a rollout is stopped because it did not get on.")
        self.refill = Histogram(
            f"{PREFIX}warmpool_refill_duration_seconds",
            "Time from a machine's creation until it is ready to be claimed.",
            POOL,
            buckets=REFILLS,
            registry=registry,
        )
        self.failures = counter(
            "refill_failures_total",
            "Machines that could not be made, did not get ready, or were deleted to make room.",
            "reason",
        )
        self.terminations = counter("vm_terminations_total", "Unclaimed machines that the pool deleted.", "reason")
        self.idle = counter("idle_vm_seconds_total", "Time that machines have waited to be claimed.")
        self.empty = counter("empty_seconds_total", "Time during which no machine was ready to be claimed.")
        self.recovered = counter(
            "recovered_total", "Machines that were found by a controller that has just begun, by state.", "state"
        )
        self.violations = counter(
            "invariant_violations_total",
            "Things found that must never be; anything but 0 is a bug or a forgery.",
            "invariant",
        )
        self._gauges = (self.desired, self.available, self.queued, self.breaker, self.orphans, self.stalled)
        self._last: dict[Key, tuple[float, int, bool]] = {}
        self._shown: dict[Key, set[tuple[str, ...]]] = {}

    def pool(self, state: WarmPoolSnapshot, status: WarmPoolStatus, clock: float) -> None:
        key = state.pool.key
        self.desired.labels(*key).set(state.target)
        self.available.labels(*key).set(len(state.available))
        self.queued.labels(*key).set(state.queued_claims)
        self.breaker.labels(*key).set(state.breaker_open)
        self.orphans.labels(*key).set(len(state.orphaned))
        stalled = any(c.type == "RolloutComplete" and c.reason == "ProgressDeadlineExceeded" for c in status.conditions)
        self.stalled.labels(*key).set(stalled)
        # There from the beginning: an alert on an increase needs a first value.
        self.violations.labels(*key, "labels")
        self._count(key, Tally(_labels(m) for m in state.vms if m.state and not m.deleting))
        self._passed(state, clock)

    def gone(self, key: Key) -> None:
        self._count(key, Tally())
        self._last.pop(key, None)
        self._shown.pop(key, None)
        for each in self._gauges:
            # It has none for a pool that was never counted.
            with suppress(KeyError):
                each.remove(*key)

    def clear(self) -> None:
        """We don't lead any more: another replica measures, and the time until we lead again is not ours."""
        for each in (*self._gauges, self.vms):
            each.clear()
        self._last.clear()
        self._shown.clear()

    def _count(self, key: Key, tally: Tally[tuple[str, ...]]) -> None:
        shown = self._shown.setdefault(key, set())
        for labels in shown - set(tally):
            self.vms.remove(*key, *labels)
        for labels, count in tally.items():
            self.vms.labels(*key, *labels).set(count)
        self._shown[key] = set(tally)

    def _passed(self, state: WarmPoolSnapshot, clock: float) -> None:
        """Time since the last look, as it was then."""
        key, idle = state.pool.key, len(state.in_state(WarmState.READY))
        since, was_idle, was_empty = self._last.get(key, (clock, 0, False))
        self.idle.labels(*key).inc((clock - since) * was_idle)
        self.empty.labels(*key).inc(clock - since if was_empty else 0.0)
        self._last[key] = clock, idle, not state.available and state.target > 0


def _labels(m: WarmVM) -> tuple[str, ...]:
    return m.state.value if m.state else "", m.standby, m.placement
