"""Computes the status of a pool from the snapshot that its plan used."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from controllers.pool.actions import RunJob, Update
from controllers.pool.analysis import with_jobs
from controllers.pool.causes import count_failing, why_not_started
from controllers.pool.counts import PoolCounts, count_vms
from controllers.pool.gates.hooks import held
from controllers.pool.history import history
from controllers.pool.outages import describe_lost_nodes, lost_vms, vms_of_lost_nodes
from controllers.pool.pools import InvalidPool
from controllers.pool.progress import (
    count_outdated,
    deadline_exceeded,
    is_progressing,
    last_progress,
    wait_for_disks,
)
from controllers.pool.reasons import PoolReason
from controllers.pool.rules import table as rules
from controllers.pool.rules.autohealing import healing_status
from controllers.pool.rules.retention import expires_at
from controllers.pool.rules.rule import Plan
from controllers.pool.rules.steps import is_analysed, update_limit, update_progress
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import MAX_NAMES, condition, merge, set_times
from controllers.shared.readiness import Readiness, Rule, decide
from controllers.shared.reference_rights import REFERENCES_REFUSED, references_refused
from controllers.shared.replica_limits import scaling_limited
from controllers.shared.vm import RetainedDisk
from poolhouse.api.apimachinery.counting import count_noun, count_of, count_verb
from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.pool import POOL, PoolStatus, RetainedDiskStatus
from poolhouse.api.kinds.pool_lifecycle import RetainedDisks

MAX_RETAINED_DISKS = 100
OPTIONAL = (
    "Paused",
    "ReplicaFailure",
    "ScalingLimited",
    "ScaleInBlocked",
    "DisksShared",
    "DisksOutdated",
    "SnapshotFailure",
    "VMsHeld",
    "UnownedVMs",
    "RevisionLost",
    REFERENCES_REFUSED,
    "EvictionBudgetFailure",
)
"""Conditions that are omitted until they are True for the first time."""


def pool_status(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> PoolStatus:
    pool, before = snapshot.pool, snapshot.pool.status
    wanted = snapshot.aborted[0] if snapshot.aborted else snapshot.revision
    counts = count_vms(snapshot)
    updated, finished = counts.new, counts.new_and_available
    if snapshot.aborted:
        aborted = [vm for vm in snapshot.active if vm.revision == wanted.label]
        updated, finished = len(aborted), sum(vm.available for vm in aborted)
    progress = with_jobs(update_progress(snapshot, now), (a for a in plan.actions if isinstance(a, RunJob)))
    complete = updated == counts.active == pool.spec.replicas and not is_analysed(snapshot, now)
    retained = sorted(snapshot.retained_disks, key=lambda disk: disk.name)[:MAX_RETAINED_DISKS]
    found = tuple(_conditions(snapshot, plan, now))
    conditions = set_times(
        (*found, *readiness(snapshot, found, now).conditions),
        before.conditions,
        generation=pool.generation,
        now=now,
        optional=OPTIONAL,
    )
    fresh = before.model_copy(
        update={
            "observed_generation": pool.generation,
            "replicas": counts.active,
            "desired_replicas": pool.spec.replicas,
            "ready_replicas": sum(vm.ready for vm in snapshot.active),
            "updated_replicas": updated,
            "updated_available_replicas": finished,
            "available_replicas": counts.available,
            "unavailable_replicas": counts.unavailable,
            "held_replicas": len(held(snapshot)),
            "terminating_replicas": counts.terminating,
            "current_revision": snapshot.revision.name if complete else before.current_revision,
            "update_revision": wanted.name,
            "label_selector": f"{meta.POOL}={pool.name}",
            "snapshots": len(snapshot.vm_snapshots),
            "retained_disks": len(snapshot.retained_disks),
            "retained": tuple(_retained(each, pool.spec.retained_disks) for each in retained),
            "update": progress,
            "history": history(snapshot, wanted, complete, now),
            "healing": healing_status(snapshot, plan.healed, now),
            "conditions": conditions,
        }
    )
    return fresh.model_copy(update={"last_progress_time": last_progress(snapshot, fresh, format_time(now))})


def _retained(disk: RetainedDisk, limits: RetainedDisks) -> RetainedDiskStatus:
    end = expires_at(disk, limits)
    return RetainedDiskStatus(name=disk.name, vm=disk.retained_for, expires_at=format_time(end) if end else None)


def invalid_spec_status(pool: InvalidPool, now: datetime) -> PoolStatus:
    """The last status, with conditions that report the invalid spec."""
    fresh = (
        condition("Progressing", False, PoolReason.INVALID_SPEC, pool.problem),
        condition("ReplicaFailure", True, PoolReason.INVALID_SPEC, pool.problem),
        *Readiness("Stalled", PoolReason.INVALID_SPEC, pool.problem).conditions,
    )
    conditions = merge(fresh, pool.status.conditions, generation=pool.generation, now=now)
    return pool.status.model_copy(update={"observed_generation": pool.generation, "conditions": conditions})


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


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    yield _available(snapshot)
    if snapshot.pool.spec.paused:
        message = "spec.paused is true: the controller does nothing to the pool's VMs"
        yield condition("Paused", True, PoolReason.PAUSED, message)
    else:
        yield condition("Paused", False, PoolReason.RESUMED)
    if snapshot.failure:
        yield condition("ReplicaFailure", True, snapshot.failure.reason, snapshot.failure.message)
    else:
        yield condition("ReplicaFailure", False, PoolReason.NO_FAILURE)
    yield scaling_limited(snapshot.excess, PoolReason.TOO_MANY_REPLICAS, PoolReason.WITHIN_LIMIT)
    if snapshot.shared_disks:
        yield condition("DisksShared", True, PoolReason.DISK_CONFLICT, _shared_disks(snapshot))
    else:
        yield condition("DisksShared", False, PoolReason.NO_DISK_CONFLICT)
    reasons = PoolReason.AUTHOR_MAY_NOT_GET, PoolReason.AUTHORS_MAY_GET
    yield references_refused(snapshot.refused_references, POOL.crd_name, snapshot.pool.name, reasons)
    for rule in rules.RULES:
        yield from rule.conditions(snapshot, plan, now)
    yield _progressing(snapshot, plan, now)


def _available(snapshot: PoolSnapshot) -> Condition:
    """The condition Available of the VMs that should run. A pool without any VM is not available."""
    counts, limit = count_vms(snapshot), snapshot.pool.max_unavailable
    down = counts.unavailable - counts.halting
    halting = f", {counts.halting} of them being halted" if counts.halting else ""
    message = f"{count_noun(counts.unavailable, 'VM', 'is', 'are')} unavailable{halting}, maxUnavailable is {limit}"
    message = _with_cause(snapshot, message)
    if down <= limit and (not snapshot.missing or snapshot.active):
        return condition("Available", True, PoolReason.MINIMUM_REPLICAS_AVAILABLE, message)
    lost, failing = len(lost_vms(snapshot)), count_failing(snapshot)
    if down - lost <= limit < down:
        return condition("Available", False, PoolReason.NODE_NOT_READY, message)
    if down - lost - failing <= limit < down:
        return condition("Available", False, PoolReason.FAILED_START, message)
    return condition("Available", False, PoolReason.MINIMUM_REPLICAS_UNAVAILABLE, message)


def _shared_disks(snapshot: PoolSnapshot) -> str:
    found = sorted(snapshot.shared_disks.items())
    named = "; ".join(f"VM {name} has disk {disk}" for name, disk in found[:MAX_NAMES])
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return f"{named}{more}: two VMs that write to one disk destroy it, so stop all of them but one"


def _progressing(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Condition:
    counts = count_vms(snapshot)
    if snapshot.failure:
        return condition("Progressing", False, snapshot.failure.reason, snapshot.failure.message)
    if snapshot.pool.spec.paused:
        return condition("Progressing", False, PoolReason.PAUSED, _with_lost_nodes(snapshot, "spec.paused is true"))
    if reason := deadline_exceeded(snapshot, now):
        return condition("Progressing", False, PoolReason.PROGRESS_DEADLINE_EXCEEDED, _with_cause(snapshot, reason))
    if snapshot.aborted:
        former = count_of(counts.new, counts.active, "VM", "has", "have")
        message = f"{snapshot.aborted[1].message}; {former} the former template"
        return condition("Progressing", False, PoolReason.UPDATE_ABORTED, message)
    limit = update_limit(snapshot, now)
    if limit.waits is not None:
        message = f"{counts.with_template}; {limit.reason}"
        return condition("Progressing", True, limit.waits, _with_lost_nodes(snapshot, message))
    outdated, closed = count_outdated(snapshot, now), next((each for each in plan.waits if each.progressing), None)
    if outdated and closed is not None and closed.progressing:
        # A wait for KubeVirt is that of one VM. A closed window holds all.
        named = f"{closed.name} waits: " if closed.progressing is PoolReason.UPDATING else ""
        message = _with_lost_nodes(snapshot, f"{counts.with_template}; {named}{closed.reason}")
        return condition("Progressing", True, closed.progressing, message)
    # The snapshot is older than the actions of the plan.
    begins = any(isinstance(each, Update) for each in plan.actions)
    if outdated or begins or _is_updating(snapshot):
        message = f"{counts.with_template}, {count_verb(counts.available, 'is', 'are')} available"
        return condition("Progressing", True, PoolReason.UPDATING, _with_cause(snapshot, message))
    return _scaled(snapshot, limit.reason, now)


def _scaled(snapshot: PoolSnapshot, kept: str, now: datetime) -> Condition:
    """The condition Progressing while no VM is updated. `kept` is why VMs keep an older template."""
    counts, wanted = count_vms(snapshot), snapshot.pool.spec.replicas
    settled = counts.active == wanted and not counts.terminating
    if vms_of_lost_nodes(snapshot) and settled:
        message = _with_cause(snapshot, f"{count_of(counts.unavailable, wanted, 'VM', 'is', 'are')} unavailable")
        return condition("Progressing", True, PoolReason.NODE_NOT_READY, message)
    if is_progressing(snapshot, now) or not settled:
        return condition("Progressing", True, PoolReason.SCALING, _with_cause(snapshot, _scaling(counts, wanted)))
    return condition("Progressing", True, PoolReason.COMPLETE, _complete(snapshot, kept))


def _scaling(counts: PoolCounts, wanted: int) -> str:
    if counts.missing:
        return count_of(counts.active, wanted, "VM", "exists", "exist")
    if excess := counts.active - wanted + counts.terminating:
        return f"{count_noun(excess, 'VM', 'is', 'are')} still to be deleted"
    return f"{count_of(counts.available, wanted, 'VM', 'is', 'are')} available"


def _with_cause(snapshot: PoolSnapshot, message: str) -> str:
    why = why_not_started(snapshot)
    if not why and (waiting := wait_for_disks(snapshot)):
        why = "{} waits: {}".format(*min(waiting.items()))
    return f"{message}; {why}" if why else message


def _with_lost_nodes(snapshot: PoolSnapshot, message: str) -> str:
    return "; ".join(filter(None, (message, describe_lost_nodes(snapshot))))


def _is_updating(snapshot: PoolSnapshot) -> bool:
    """Whether VMs of an update are starting, and no VM is missing or to be deleted."""
    if snapshot.missing or len(snapshot.active) > snapshot.pool.spec.replicas or snapshot.deleting:
        return False
    starting = any(not snapshot.outdated(vm) and not vm.available for vm in snapshot.active)
    return starting and snapshot.pool.status.current_revision not in ("", snapshot.revision.name)


def _complete(snapshot: PoolSnapshot, kept: str) -> str:
    counts = count_vms(snapshot)
    if counts.new < counts.active:
        return f"{counts.with_template}; {kept or 'the update strategy leaves the others'}"
    if any(snapshot.outdated_disks(vm) for vm in snapshot.active):
        return "all VMs have the template, but some disks are older: see the condition DisksOutdated"
    return "all VMs are as the spec requires"
