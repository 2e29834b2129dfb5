"""Metrics of claims."""

from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as PlainCounter
from prometheus_client import Histogram as PlainHistogram

from controllers.claim.snapshot import Claim
from controllers.shared.conditions import find_condition
from controllers.shared.series import Counter
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.runtime.metrics import PREFIX

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 600)
PHASES = ("queued", "bind", "activate", "check", "total")


class ClaimMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._claims = Counter(
            f"{PREFIX}claims_total",
            "Claims that became Ready or failed. result is Ready or the reason of the failure; launch is how the claim "
            "got its VM (Warm, Resumed, Started or Cold; empty without a VM). The hit rate is the share of Ready "
            "claims that are not Cold.",
            ("namespace", "warmpool", "launch", "result"),
            registry=registry,
            lasting=True,
        )
        self._seconds = PlainHistogram(
            f"{PREFIX}claim_duration_seconds",
            "Time until a claim was Ready, by phase (queued, bind, activate, check, total) and by launch.",
            ("phase", "launch"),
            buckets=SECONDS,
            registry=registry,
        )
        self._conflicts = PlainCounter(
            f"{PREFIX}claim_conflicts_total",
            "Reservations of a VM for a claim that did not succeed at once: false when only the status of the VM had "
            "changed, lost when another claim or user was first, unsure when no answer came.",
            ("outcome",),
            registry=registry,
        )
        self._deleted = Counter(
            f"{PREFIX}claim_vms_deleted_total",
            "VMs that were deleted because their claim ended or could not use them.",
            ("namespace", "warmpool"),
            registry=registry,
            lasting=True,
        )
        for outcome in ("false", "lost", "unsure"):
            self._conflicts.labels(outcome)

    def conflict(self, outcome: Literal["false", "lost", "unsure"]) -> None:
        self._conflicts.labels(outcome).inc()

    def vm_deleted(self, vm: WarmVM) -> None:
        self._deleted.labels(vm.namespace, vm.pool).inc()

    def status_written(self, before: Claim, after: Claim) -> None:
        status = after.status
        pool, launch = status.pool_name or after.spec.pool_name or "", status.launch_type or ""
        if status.phase == "Failed" and before.status.phase != "Failed":
            ready = find_condition(status.conditions, "Ready")
            self._claims.labels(after.namespace, pool, launch, ready.reason if ready is not None else "Failed").inc()
        if not status.ready_at or before.status.ready_at:
            return
        self._claims.labels(after.namespace, pool, launch, "Ready").inc()
        for phase in PHASES:
            took = getattr(status.timings, f"{phase}_ms", None)
            if took is not None:
                self._seconds.labels(phase, launch).observe(took / 1000)
