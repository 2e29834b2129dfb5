"""The condition Progressing: what the pool does to reach its spec, or why it does not."""

from datetime import datetime

from controllers.pool.actions import Update
from controllers.pool.causes import with_cause
from controllers.pool.counts import count_vms
from controllers.pool.outages import describe_lost_nodes, vms_of_lost_nodes
from controllers.pool.progress import count_outdated, deadline_exceeded, is_progressing
from controllers.pool.reasons import PoolReason
from controllers.pool.rules.rule import Plan
from controllers.pool.rules.scale_out import DELETION_TIMEOUT
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.update_limit import update_limit
from controllers.shared.conditions import condition, join_names
from poolhouse.api.apimachinery.counting import count_noun, count_of, count_verb
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.kinds.metav1 import Condition


def progressing(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Condition:
    counts = count_vms(snapshot)
    if snapshot.failure:
        return condition("Progressing", False, snapshot.failure.reason, snapshot.failure.message)
    if snapshot.pool.spec.paused:
        return condition("Progressing", False, PoolReason.PAUSED, _with_lost_nodes(snapshot, "spec.paused is true"))
    if reason := deadline_exceeded(snapshot, now):
        return condition("Progressing", False, PoolReason.PROGRESS_DEADLINE_EXCEEDED, with_cause(snapshot, reason))
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
        # A closed window holds all VMs. Every other wait is that of one.
        named = "" if closed.progressing is PoolReason.WAITING_FOR_WINDOW else f"{closed.name} waits: "
        message = _with_lost_nodes(snapshot, f"{counts.with_template}; {named}{closed.reason}")
        return condition("Progressing", True, closed.progressing, message)
    # The snapshot is older than the actions of the plan.
    begins = any(isinstance(each, Update) for each in plan.actions)
    if outdated or begins or _is_updating(snapshot):
        message = f"{counts.with_template}, {count_verb(counts.available, 'is', 'are')} available"
        return condition("Progressing", True, PoolReason.UPDATING, with_cause(snapshot, message))
    return _scaled(snapshot, plan, limit.reason, now)


def _scaled(snapshot: PoolSnapshot, plan: Plan, kept: str, now: datetime) -> Condition:
    """The condition Progressing while no VM is updated. `kept` is why VMs keep an older template."""
    counts, wanted = count_vms(snapshot), snapshot.pool.spec.replicas
    settled = counts.active == wanted and not counts.terminating
    if vms_of_lost_nodes(snapshot) and settled:
        message = with_cause(snapshot, f"{count_of(counts.unavailable, wanted, 'VM', 'is', 'are')} unavailable")
        return condition("Progressing", True, PoolReason.NODE_NOT_READY, message)
    if is_progressing(snapshot, now) or not settled:
        return condition("Progressing", True, PoolReason.SCALING, with_cause(snapshot, _scaling(snapshot, plan, now)))
    return condition("Progressing", True, PoolReason.COMPLETE, _complete(snapshot, kept))


def _scaling(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> str:
    counts, wanted = count_vms(snapshot), snapshot.pool.spec.replicas
    if counts.missing:
        return count_of(counts.active, wanted, "VM", "exists", "exist")
    if excess := counts.active - wanted + counts.terminating:
        kept = [vm.name for vm in snapshot.deleting if now - parse_time(vm.deleted_at) >= DELETION_TIMEOUT]
        why = f"; finalizers keep {join_names(kept)}" if kept else ""
        left = plan.blocked or f"{count_noun(excess, 'VM', 'is', 'are')} still to be deleted"
        return f"{left}{why}"
    return f"{count_of(counts.available, wanted, 'VM', 'is', 'are')} available"


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
