"""What claims measure."""

from __future__ import annotations

from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram

from controllers.claim.snapshot import Claim
from controllers.warmpool.warm_vm import WarmVM
from runtime.metrics import PREFIX

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 600)
PHASES = ("queued", "bind", "activate", "check", "total")


class ClaimMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._claims = Counter(
            f"{PREFIX}claims_total",
            "Claims that came to an end of their wait: result is Ready, or the reason for which they failed; launch is "
            "how they got their machine (Warm, Resumed, Started or Cold; empty where they got none). The hit rate is "
            "the share of Ready ones that were not Cold.",
            ("namespace", "warmpool", "launch", "result"),
            registry=registry,
        )
        self._seconds = Histogram(
            f"{PREFIX}claim_duration_seconds",
            "Time of a claim until it was Ready, by phase (queued, bind, activate, check, total) and by launch.",
            ("phase", "launch"),
            buckets=SECONDS,
            registry=registry,
        )
        self._conflicts = Counter(
            f"{PREFIX}claim_conflicts_total",
            "Writes that were to give a machine to a claim and were refused: false when only the machine's status had "
            "changed, lost when somebody else had it, unsure when no answer came.",
            ("outcome",),
            registry=registry,
        )
        self._ended = Counter(
            f"{PREFIX}claim_machines_deleted_total",
            "Machines that were deleted because their claim ended or could not use them.",
            ("namespace", "warmpool"),
            registry=registry,
        )
        for outcome in ("false", "lost", "unsure"):
            self._conflicts.labels(outcome)

    def conflict(self, outcome: Literal["false", "lost", "unsure"]) -> None:
        self._conflicts.labels(outcome).inc()

    def ended(self, m: WarmVM) -> None:
        self._ended.labels(m.namespace, m.pool).inc()

    def said(self, before: Claim, after: Claim) -> None:
        """A status that was written."""
        status = after.status
        pool, launch = status.pool_name or after.spec.pool_name or "", status.launch_type or ""
        if status.phase == "Failed" and before.status.phase != "Failed":
            reason = next((c.reason for c in status.conditions if c.type == "Ready"), "Failed")
            self._claims.labels(after.namespace, pool, launch, reason).inc()
        if not status.ready_at or before.status.ready_at:
            return
        self._claims.labels(after.namespace, pool, launch, "Ready").inc()
        for phase in PHASES:
            took = getattr(status.timings, f"{phase}_ms", None)
            if took is not None:
                self._seconds.labels(phase, launch).observe(took / 1000)
