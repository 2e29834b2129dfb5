"""Metrics of warm pools."""

from collections import Counter as Tally
from contextlib import suppress

from prometheus_client import CollectorRegistry

from controllers.shared.series import Counter, Gauge, Histogram
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.snapshot import WarmPoolSnapshot
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.api.kinds.warmpool import WarmPoolStatus
from poolhouse.runtime.metrics import PREFIX
from poolhouse.runtime.resource import Key

POOL = ("namespace", "warmpool")
REFILL_BUCKETS = (0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280)


class WarmPoolMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{PREFIX}warmpool_{name}", text, (*POOL, *labels), registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{PREFIX}warmpool_{name}", text, (*POOL, *labels), registry=registry, lasting=True)

        self.vms = gauge("vms", "VMs of a warm pool.", "state", "standby", "placement")
        self.desired = gauge("desired", "VMs that should be ready for claims, including those for queued claims.")
        self.available = gauge("available", "VMs that a claim can get now.")
        self.queued = gauge("queued_claims", "Claims that wait for a VM of the pool.")
        self.breaker = gauge("breaker_open", "1 while VMs fail and the controller creates one at a time to test.")
        self.orphans = gauge("orphans", "VMs that were released from the pool and still exist.")
        self.orphaned = counter(
            "orphaned_total", "VMs released from their pool, deleted pools included, by reason.", "reason"
        )
        self.stalled = gauge("rollout_stalled", "1 while a rollout has stopped at its progress deadline.")
        self.refill = Histogram(
            f"{PREFIX}warmpool_refill_duration_seconds",
            "Time from a VM's creation until it is ready to be claimed.",
            POOL,
            buckets=REFILL_BUCKETS,
            registry=registry,
        )
        self.failures = counter(
            "refill_failures_total",
            "VMs that could not be created, did not become ready, or were deleted to make room.",
            "reason",
        )
        self.terminations = counter("vm_terminations_total", "Unclaimed VMs that the pool deleted.", "reason")
        self.idle = counter("idle_vm_seconds_total", "Time that VMs have waited to be claimed.")
        self.empty = counter("empty_seconds_total", "Time during which no VM was ready to be claimed.")
        self.recovered = counter("recovered_total", "VMs that the controller found when it started, by state.", "state")
        self.violations = counter(
            "invariant_violations_total",
            "Violated invariants. A value above 0 is a bug, or labels that somebody forged.",
            "invariant",
        )
        self._gauges = (self.desired, self.available, self.queued, self.breaker, self.orphans, self.stalled)
        self._last: dict[Key, tuple[float, int, bool]] = {}
        self._exported: dict[Key, set[tuple[str, ...]]] = {}

    def record(self, snapshot: WarmPoolSnapshot, status: WarmPoolStatus, clock: float) -> None:
        key = snapshot.pool.key
        self.desired.labels(*key).set(snapshot.target)
        self.available.labels(*key).set(len(snapshot.available))
        self.queued.labels(*key).set(snapshot.queued_claims)
        self.breaker.labels(*key).set(snapshot.breaker_open)
        self.orphans.labels(*key).set(len(snapshot.orphaned))
        deadline_exceeded = ("RolloutComplete", Reason.PROGRESS_DEADLINE_EXCEEDED)
        self.stalled.labels(*key).set(any((c.type, c.reason) == deadline_exceeded for c in status.conditions))
        # The counter starts at 0: an alert on an increase needs a first value.
        self.violations.labels(*key, "labels")
        counted = [vm for vm in snapshot.vms if vm.state and not vm.deleting]
        self._set_vms(key, Tally((vm.state.value, vm.standby, vm.placement) for vm in counted if vm.state))
        self._add_seconds(snapshot, clock)

    def remove(self, key: Key) -> None:
        self._set_vms(key, Tally())
        self._last.pop(key, None)
        self._exported.pop(key, None)
        for each in self._gauges:
            with suppress(KeyError):  # no metrics of this pool were recorded
                each.remove(*key)

    def clear(self) -> None:
        """Removes all gauges when this process is no longer the leader, because the new leader exports them."""
        for each in (*self._gauges, self.vms):
            each.clear()
        self._last.clear()
        self._exported.clear()

    def _set_vms(self, key: Key, tally: Tally[tuple[str, ...]]) -> None:
        exported = self._exported.setdefault(key, set())
        for labels in exported - set(tally):
            self.vms.remove(*key, *labels)
        for labels, count in tally.items():
            self.vms.labels(*key, *labels).set(count)
        self._exported[key] = set(tally)

    def _add_seconds(self, snapshot: WarmPoolSnapshot, clock: float) -> None:
        """Adds the time since the last call to the counters, weighted with the numbers of the last call."""
        key, idle = snapshot.pool.key, len(snapshot.in_state(WarmState.READY))
        since, was_idle, was_empty = self._last.get(key, (clock, 0, False))
        self.idle.labels(*key).inc((clock - since) * was_idle)
        self.empty.labels(*key).inc(clock - since if was_empty else 0.0)
        self._last[key] = clock, idle, not snapshot.available and snapshot.target > 0
