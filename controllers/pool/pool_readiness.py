"""The conditions Ready, Reconciling and Stalled of a pool, which follow from its other conditions."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from controllers.pool.pools import InvalidPool
from controllers.pool.progress import is_progressing, stalls_at
from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import condition, find_condition, merge
from controllers.shared.readiness import Readiness, Rule, decide
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.pool import PoolStatus

STALLS = {PoolReason.PROGRESS_DEADLINE_EXCEEDED, PoolReason.UPDATE_ABORTED}
WAITS = {PoolReason.UPDATE_PAUSED, PoolReason.ANALYSIS_INCONCLUSIVE, PoolReason.WAITING_FOR_WINDOW}
RETRIED = {PoolReason.TEMPLATE_DOES_NOT_FIT, PoolReason.SNAPSHOT_FAILED}
"""Reasons that are Stalled only after the progress deadline, because until then the controller goes on by itself."""
READINESS = (
    Rule("Stalled", "DisksShared", "True"),
    Rule("Stalled", "Available", "False", {PoolReason.NODE_NOT_READY}),
    Rule("Stalled", "ReplicaFailure", "True"),
    Rule("Stalled", "ScalingLimited", "True"),
    Rule("Waiting", "Progressing", "False", {PoolReason.PAUSED}),
    Rule("Stalled", "Progressing", "False", STALLS),
    Rule("Stalled", "SnapshotFailure", "True", {PoolReason.SNAPSHOTS_NOT_SERVED, PoolReason.RESTORE_FAILED}),
    Rule("Stalled", "ScaleInBlocked", "True", {PoolReason.NO_CANDIDATES}),
    Rule("Stalled", "Healing", "False", {PoolReason.TOO_MANY_FAILING}),
    Rule("Stalled", "SnapshotFailure", "True", RETRIED),
    Rule("Waiting", "Progressing", "True", WAITS),
    Rule("Stalled", "Progressing", "True", RETRIED),
    # VMs that stay unavailable exceed the progress deadline.
    Rule("Reconciling", "ScaleInBlocked", "True", {PoolReason.WAITING_FOR_BUDGET}),
    Rule("Ready", "Progressing", "True", {PoolReason.COMPLETE}),
    Rule("Reconciling", "Progressing", "True"),
)


def readiness(snapshot: PoolSnapshot, conditions: Sequence[Condition], now: datetime) -> Readiness:
    """The pool is ready if each VM is as the spec requires and is available, also while the pool is paused. The
    controller repeats what the API server refused, takes failed snapshots again, and updates the VMs that the template
    fits; the pool is Stalled only after the progress deadline."""
    found = decide(conditions, READINESS)
    assert found is not None, "the condition Progressing is always there"
    retries = snapshot.failure and found.reason == snapshot.failure.reason != PoolReason.DISK_CONFLICT
    if (retries or found.reason in RETRIED) and not _is_late(snapshot, now):
        return replace(found, state="Reconciling")
    if found.state == "Ready":
        return replace(found, reason=PoolReason.READY)
    if (down := find_condition(conditions, "Available", "False")) is not None:
        if found.reason in WAITS:
            message = f"{down.message}; {found.message}"
            return replace(found, state="Reconciling", reason=down.reason, message=message)
        if down.reason == PoolReason.FAILED_START and found.state == "Reconciling":
            return replace(found, reason=down.reason, message=down.message)
        if down.reason == PoolReason.FAILED_START and found.reason == PoolReason.PAUSED:
            return replace(found, reason=down.reason, message=f"{down.message}; {found.message}")
    if found.reason == PoolReason.PAUSED and _is_settled(snapshot, now):
        return replace(found, state="Ready", message=f"{found.message}, and all VMs are as the spec requires")
    return found


def _is_late(snapshot: PoolSnapshot, now: datetime) -> bool:
    end = stalls_at(snapshot)
    return end is not None and now >= end


def _is_settled(snapshot: PoolSnapshot, now: datetime) -> bool:
    excess = len(snapshot.active) > snapshot.pool.spec.replicas
    return not (excess or snapshot.deleting or is_progressing(snapshot, now))


def invalid_spec_status(pool: InvalidPool, now: datetime) -> PoolStatus:
    """The last status, with conditions that report the invalid spec."""
    fresh = (
        condition("Progressing", False, PoolReason.INVALID_SPEC, pool.problem),
        condition("ReplicaFailure", True, PoolReason.INVALID_SPEC, pool.problem),
        *Readiness("Stalled", PoolReason.INVALID_SPEC, pool.problem).conditions,
    )
    conditions = merge(fresh, pool.status.conditions, generation=pool.generation, now=now)
    return pool.status.model_copy(update={"observed_generation": pool.generation, "conditions": conditions})
