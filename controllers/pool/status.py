"""Computes the status of a pool from the snapshot that its plan used."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from apimachinery.counting import count_noun, count_of, count_verb
from apimachinery.timestamps import format_time
from controllers.pool import lost_base
from controllers.pool.actions import Heal, RunJob
from controllers.pool.analysis import with_jobs
from controllers.pool.autohealing import healing_status
from controllers.pool.before_update import NOT_SERVED, held_by_snapshots
from controllers.pool.failures import why_not_started
from controllers.pool.history import history
from controllers.pool.hooks import held, pending_hooks
from controllers.pool.plan import Plan
from controllers.pool.progress import (
    count_outdated,
    deadline_exceeded,
    is_progressing,
    last_progress,
    wait_for_disks,
)
from controllers.pool.reasons import PoolReason
from controllers.pool.retention import expires_at
from controllers.pool.selection import is_behind
from controllers.pool.snapshot import InvalidPool, PoolSnapshot
from controllers.pool.steps import is_analysed, update_limit, update_progress, with_template
from controllers.pool.surge import is_replaced
from controllers.pool.windows import refusal_of_updates
from controllers.shared.conditions import MAX_NAMES, condition, join_names, merge, set_times
from controllers.shared.readiness import Readiness, Rule, decide, exceeds_quota
from controllers.shared.vm import VM, RetainedDisk
from kinds import meta
from kinds.metav1 import Condition
from kinds.pool import PoolStatus, RetainedDiskStatus
from kinds.pool_lifecycle import RetainedDisks

MAX_RETAINED_DISKS = 100
OPTIONAL = (
    "Paused",
    "ReplicaFailure",
    "ScaleInBlocked",
    "DisksShared",
    "DisksOutdated",
    "SnapshotFailure",
    "VMsHeld",
    "UnownedVMs",
    "RevisionLost",
)
"""Conditions that are omitted until they are True for the first time."""


def pool_status(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> PoolStatus:
    pool, before = snapshot.pool, snapshot.pool.status
    wanted = snapshot.aborted[0] if snapshot.aborted else snapshot.revision
    if snapshot.aborted:
        updated = sum(vm.revision == wanted.label for vm in snapshot.active)
    else:
        updated = sum(not is_behind(snapshot, vm) for vm in snapshot.active)
    available = sum(vm.available for vm in snapshot.active)
    progress = with_jobs(update_progress(snapshot, now), (a for a in plan.actions if isinstance(a, RunJob)))
    complete = updated == len(snapshot.active) == pool.spec.replicas and not is_analysed(snapshot, now)
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
            "replicas": len(snapshot.active),
            "ready_replicas": sum(vm.ready for vm in snapshot.active),
            "updated_replicas": updated,
            "available_replicas": available,
            "unavailable_replicas": max(pool.spec.replicas, len(snapshot.active)) - available,
            "held_replicas": len(held(snapshot)),
            "terminating_replicas": len(snapshot.deleting),
            "current_revision": snapshot.revision.name if complete else before.current_revision,
            "update_revision": wanted.name,
            "label_selector": f"{meta.POOL}={pool.name}",
            "snapshots": len(snapshot.vm_snapshots),
            "kept_disks": len(snapshot.retained_disks),
            "kept": tuple(_retained(each, pool.spec.retained_disks) for each in retained),
            "update": progress,
            "history": history(snapshot, wanted, complete, now),
            "healing": healing_status(snapshot, healed(plan), now),
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
    Rule("Stalled", "ReplicaFailure", "True"),
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
    """The pool is ready if each VM is as the spec requires and is available, also while the pool is paused."""
    if snapshot.failure and exceeds_quota(snapshot.failure.message) and not deadline_exceeded(snapshot, now):
        return Readiness("Reconciling", snapshot.failure.reason, snapshot.failure.message)
    found = decide(conditions, READINESS)
    assert found is not None, "the condition Progressing is always there"
    if found.state == "Ready":
        return replace(found, reason=PoolReason.READY)
    if found.reason == PoolReason.PAUSED and _is_settled(snapshot, now):
        return replace(found, state="Ready", message=f"{found.message}, and all VMs are as the spec requires")
    return found


def _is_settled(snapshot: PoolSnapshot, now: datetime) -> bool:
    excess = len(snapshot.active) > snapshot.pool.spec.replicas
    return not (excess or snapshot.deleting or is_progressing(snapshot, now))


def healed(plan: Plan) -> tuple[str, ...]:
    return tuple(each.name for each in plan.actions if isinstance(each, Heal))


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
    reason = PoolReason.NO_CANDIDATES if plan.blocked else PoolReason.NOT_BLOCKED
    yield condition("ScaleInBlocked", bool(plan.blocked), reason, plan.blocked)
    if snapshot.shared_disks:
        yield condition("DisksShared", True, PoolReason.DISK_CONFLICT, _shared_disks(snapshot))
    else:
        yield condition("DisksShared", False, PoolReason.NO_DISK_CONFLICT)
    yield _disks_outdated(snapshot)
    yield _snapshot_failure(snapshot, now)
    yield _held(snapshot, now)
    yield _unowned(snapshot)
    yield _revision_lost(snapshot)
    yield from _healing(snapshot, plan, now)
    yield _progressing(snapshot, now)


def _available(snapshot: PoolSnapshot) -> Condition:
    """The condition Available of the VMs that should run. A pool without any VM is not available."""
    limit = snapshot.pool.max_unavailable
    down = snapshot.missing + sum(vm.should_run and not vm.available for vm in snapshot.active)
    message = _with_cause(snapshot, f"{count_noun(down, 'VM', 'is', 'are')} unavailable, maxUnavailable is {limit}")
    if down <= limit and (not snapshot.missing or snapshot.active):
        return condition("Available", True, PoolReason.MINIMUM_REPLICAS_AVAILABLE, message)
    return condition("Available", False, PoolReason.MINIMUM_REPLICAS_UNAVAILABLE, message)


def _shared_disks(snapshot: PoolSnapshot) -> str:
    found = sorted(snapshot.shared_disks.items())
    named = "; ".join(f"VM {name} has disk {disk}" for name, disk in found[:MAX_NAMES])
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return f"{named}{more}: two VMs that write to one disk destroy it, so stop all of them but one"


def _disks_outdated(snapshot: PoolSnapshot) -> Condition:
    found = [vm for vm in snapshot.active if snapshot.outdated_disks(vm)]
    if not found:
        return condition("DisksOutdated", False, PoolReason.DISKS_UP_TO_DATE)
    kept = [vm.name for vm in found if not (snapshot.disks_to_replace(vm) or is_replaced(snapshot, vm))]
    message = (
        f"{count_of(len(found), len(snapshot.active), 'VM', 'has', 'have')} disks that were created from an older"
        f" template: {join_names(vm.name for vm in found)}."
    )
    if len(kept) < len(found):
        what = "" if snapshot.surges else "the disks of "
        message += f" Updates replace {what}{count_noun(len(found) - len(kept), 'VM')}."
    if kept:
        message += f" {join_names(kept)}: {_why_kept(snapshot)}; a VM that is deleted is created with new disks."
    return condition("DisksOutdated", True, PoolReason.DISK_TEMPLATE_CHANGED, message)


def _snapshot_failure(snapshot: PoolSnapshot, now: datetime) -> Condition:
    held, unserved = held_by_snapshots(snapshot, now), not snapshot.serves_snapshots
    restores = [each for each in snapshot.restores_by_vm.values() if each.failed]
    failed = [each for each in snapshot.active if (taken := snapshot.next_snapshot(each)) and taken.failed]
    if held and unserved:
        message = f"{count_noun(len(held), 'VM', 'is', 'are')} not updated: {NOT_SERVED}"
        return condition("SnapshotFailure", True, PoolReason.SNAPSHOTS_NOT_SERVED, message)
    if restores:
        message = "the restore failed of " + join_names(f"{each.vm_name} ({each.problem})" for each in restores)
        return condition("SnapshotFailure", True, PoolReason.RESTORE_FAILED, message)
    if held and failed:
        reasons = {each.name: each.reason for each in held}
        why = next((reasons[vm.name] for vm in failed if vm.name in reasons), "")
        message = f"not updated because of failed snapshots: {join_names(vm.name for vm in failed)}; {why}"
        return condition("SnapshotFailure", True, PoolReason.SNAPSHOT_FAILED, message)
    return condition("SnapshotFailure", False, PoolReason.NO_SNAPSHOT_FAILURE)


def _unowned(snapshot: PoolSnapshot) -> Condition:
    if not snapshot.unowned:
        return condition("UnownedVMs", False, PoolReason.NO_UNOWNED_VMS)
    message = (
        f"{join_names(snapshot.unowned)}: the name and the label of this pool, but no owner. The pool neither counts"
        " nor changes them, and Services may select them. `poolhouse attach` takes them into the pool; without the"
        f" label {meta.POOL} they are VMs of their own"
    )
    return condition("UnownedVMs", True, PoolReason.NO_OWNER, message)


def _revision_lost(snapshot: PoolSnapshot) -> Condition:
    found = sorted((vm for vm in snapshot.active if vm.left_fields), key=lambda vm: vm.name)
    if not found:
        return condition("RevisionLost", False, PoolReason.NO_REVISION_LOST)
    message = (
        f"{join_names(vm.name for vm in found)}: the ControllerRevision of the former template was gone, so that an"
        f" update removed nothing. It may have left {lost_base.show(found[0].left_fields)}: {lost_base.REMEDY}"
    )
    return condition("RevisionLost", True, PoolReason.REVISION_LOST, message)


def _held(snapshot: PoolSnapshot, now: datetime) -> Condition:
    found = held(snapshot)
    if not found:
        return condition("VMsHeld", False, PoolReason.NO_VMS_HELD)
    names = join_names(_hooks(vm, [hook.name for hook in pending_hooks(snapshot, vm, now)]) for vm in found)
    message = f"{count_noun(len(found), 'VM', 'waits', 'wait')} for lifecycle hooks: {names}"
    return condition("VMsHeld", True, PoolReason.WAITING_FOR_HOOKS, message)


def _hooks(vm: VM, names: list[str]) -> str:
    return f"{vm.name} ({', '.join(names) or 'all ended'})"


def _why_kept(snapshot: PoolSnapshot) -> str:
    if snapshot.replaces_disks or snapshot.surges:
        return f"no update replaces the disks, because {meta.SCALE_IN} protects the VM or the disks have other names"
    return "replacePolicy is Never, so no update replaces the disks"


def _healing(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    found = healing_status(snapshot, healed(plan), now)
    if found is None:
        return
    if found.breaker is not None and found.breaker.open:
        yield condition("Healing", False, PoolReason.TOO_MANY_FAILING, found.breaker.message)
    elif found.machines:
        names = ", ".join(f"{each.name} ({each.attempts})" for each in found.machines[:MAX_NAMES])
        message = (
            f"{count_noun(len(found.machines), 'VM', 'was', 'were')} replaced, with the number of attempts: {names}"
        )
        yield condition("Healing", True, PoolReason.VMS_REPLACED, message)
    else:
        yield condition("Healing", False, PoolReason.NO_FAILING_VMS)


def _progressing(snapshot: PoolSnapshot, now: datetime) -> Condition:
    wanted, active = snapshot.pool.spec.replicas, len(snapshot.active)
    if snapshot.failure:
        return condition("Progressing", False, snapshot.failure.reason, snapshot.failure.message)
    if snapshot.pool.spec.paused:
        return condition("Progressing", False, PoolReason.PAUSED, "spec.paused is true")
    if reason := deadline_exceeded(snapshot, now):
        return condition("Progressing", False, PoolReason.PROGRESS_DEADLINE_EXCEEDED, _with_cause(snapshot, reason))
    if snapshot.aborted:
        former = count_of(with_template(snapshot), active, "VM", "has", "have")
        message = f"{snapshot.aborted[1].message}; {former} the former template"
        return condition("Progressing", False, PoolReason.UPDATE_ABORTED, message)
    limit = update_limit(snapshot, now)
    if limit.waits is not None:
        message = f"{_with_template(snapshot)}; {limit.reason}"
        return condition("Progressing", True, limit.waits, message)
    outdated, closed = count_outdated(snapshot, now), refusal_of_updates(snapshot, now)
    behind = f"{count_of(outdated, active, 'VM', 'is', 'are')} not up to date"
    if outdated and closed:
        return condition("Progressing", True, PoolReason.WAITING_FOR_WINDOW, f"{behind}; {closed}")
    if outdated:
        return condition("Progressing", True, PoolReason.UPDATING, _with_cause(snapshot, behind))
    if _is_updating(snapshot):
        available = sum(vm.available for vm in snapshot.active)
        message = f"{_with_template(snapshot)}, {count_verb(available, 'is', 'are')} available"
        return condition("Progressing", True, PoolReason.UPDATING, _with_cause(snapshot, message))
    if is_progressing(snapshot, now) or active > wanted or snapshot.deleting:
        message = count_of(active, wanted, "VM", "exists", "exist")
        return condition("Progressing", True, PoolReason.SCALING, _with_cause(snapshot, message))
    return condition("Progressing", True, PoolReason.COMPLETE, _complete(snapshot, limit.reason))


def _with_cause(snapshot: PoolSnapshot, message: str) -> str:
    why = why_not_started(snapshot)
    if not why and (waiting := wait_for_disks(snapshot)):
        why = "{} waits: {}".format(*min(waiting.items()))
    return f"{message}; {why}" if why else message


def _with_template(snapshot: PoolSnapshot) -> str:
    return f"{count_of(with_template(snapshot), len(snapshot.active), 'VM', 'has', 'have')} the template"


def _is_updating(snapshot: PoolSnapshot) -> bool:
    """Whether VMs of an update are starting, and no VM is missing or to be deleted."""
    if snapshot.missing or len(snapshot.active) > snapshot.pool.spec.replicas or snapshot.deleting:
        return False
    starting = any(not snapshot.outdated(vm) and not vm.available for vm in snapshot.active)
    return starting and snapshot.pool.status.current_revision not in ("", snapshot.revision.name)


def _complete(snapshot: PoolSnapshot, kept: str) -> str:
    if with_template(snapshot) < len(snapshot.active):
        return f"{_with_template(snapshot)}; {kept or 'the update strategy leaves the others'}"
    if any(snapshot.outdated_disks(vm) for vm in snapshot.active):
        return "all VMs have the template, but some disks are older: see the condition DisksOutdated"
    return "all VMs are as the spec requires"
