"""The conditions Ready, Reconciling and Stalled of a pool, which follow from its other conditions."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from controllers.pool.pools import InvalidPool
from controllers.pool.progress import is_progressing
from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import condition, merge
from controllers.shared.readiness import Readiness, Rule, decide
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.pool import PoolStatus

STALLS = {PoolReason.PROGRESS_DEADLINE_EXCEEDED, PoolReason.UPDATE_ABORTED}
WAITS = {PoolReason.UPDATE_PAUSED, PoolReason.ANALYSIS_INCONCLUSIVE, PoolReason.WAITING_FOR_WINDOW}
READINESS = (
    Rule("Stalled", "DisksShared", "True"),
    Rule("Stalled", "Available", "False", {PoolReason.NODE_NOT_READY}),
    Rule("Stalled", "ReplicaFailure", "True"),
    Rule("Stalled", "ScalingLimited", "True"),
    Rule("Waiting", "Progressing", "False", {PoolReason.PAUSED}),
    Rule("Stalled", "Progressing", "False", STALLS),
    Rule("Stalled", "SnapshotFailure", "True"),
    Rule("Stalled", "ScaleInBlocked", "True"),
    Rule("Stalled", "Healing", "False", {PoolReason.TOO_MANY_FAILING}),
    Rule("Waiting", "Progressing", "True", WAITS),
    Rule("Ready", "Progressing", "True", {PoolReason.COMPLETE}),
    Rule("Reconciling", "Progressing", "True"),
)


def readiness(snapshot: PoolSnapshot, conditions: Sequence[Condition], now: datetime) -> Readiness:
    """The pool is ready if each VM is as the spec requires and is available, also while the pool is paused. The
    controller repeats what the API server refused; the pool is Stalled only after the progress deadline."""
    found = decide(conditions, READINESS)
    assert found is not None, "the condition Progressing is always there"
    retries = snapshot.failure and found.reason == snapshot.failure.reason != PoolReason.DISK_CONFLICT
    if retries and not _is_late(snapshot, now):
        return replace(found, state="Reconciling")
    if found.state == "Ready":
        return replace(found, reason=PoolReason.READY)
    if (down := _unavailable(conditions)) is not None:
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


def _unavailable(conditions: Sequence[Condition]) -> Condition | None:
    return next((each for each in conditions if each.type == "Available" and each.status == "False"), None)


def _is_late(snapshot: PoolSnapshot, now: datetime) -> bool:
    """Whether the pool has made no progress until its deadline. The deadline of a pool that was complete begins when a
    VM becomes unavailable."""
    pool, before = snapshot.pool, snapshot.pool.status
    down = snapshot.missing or not all(vm.available for vm in snapshot.active)
    known = before.observed_generation == pool.generation and before.update_revision == snapshot.revision.name
    if not known or before.last_progress_time is None or pool.spec.paused or (down and not before.unavailable_replicas):
        return False
    return now >= parse_time(before.last_progress_time) + timedelta(seconds=pool.spec.progress_deadline_seconds)


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
