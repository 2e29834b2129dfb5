"""Computes the status of a pool from the snapshot that its plan used."""

from datetime import datetime

from controllers.pool.actions import RunJob
from controllers.pool.analysis import with_jobs
from controllers.pool.conditions import conditions
from controllers.pool.counts import count_vms
from controllers.pool.gates.hooks import held
from controllers.pool.healing_status import healing_status
from controllers.pool.history import history
from controllers.pool.pool_readiness import readiness
from controllers.pool.progress import last_progress
from controllers.pool.rules.retention import retained
from controllers.pool.rules.rule import Plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.update_limit import is_analysed, update_progress
from controllers.shared.conditions import set_times
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import PoolStatus


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
    found = tuple(conditions(snapshot, plan, now))
    timed = set_times(
        (*found, *readiness(snapshot, found, now).conditions),
        before.conditions,
        generation=pool.generation,
        now=now,
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
            "retained": retained(snapshot),
            "update": progress,
            "history": history(snapshot, wanted, complete, now),
            "healing": healing_status(snapshot, plan.healed, now),
            "conditions": timed,
        }
    )
    return fresh.model_copy(update={"last_progress_time": last_progress(snapshot, fresh, format_time(now))})
