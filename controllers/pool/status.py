"""What a pool's status says, from the same State that its plan is made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from controllers.pool.actions import Heal
from controllers.pool.autohealing import healing_status
from controllers.pool.plan import Plan
from controllers.pool.progress import (
    NAMES_SAID,
    STALLED,
    count_outdated,
    deadline_exceeded,
    is_progressing,
    last_progress,
)
from controllers.pool.retained_disks import RetainedDisk
from controllers.pool.snapshot import InvalidSpec, Pool, PoolSnapshot
from kinds import meta
from kinds.metav1 import Condition, with_transition_times
from kinds.pool import PoolStatus, RetainedDiskStatus

KEPT_SAID = 100
ANNOUNCED = ("Paused", "ReplicaFailure", "ScaleInBlocked", "DisksShared")
"""Conditions that are left out while they have never been True."""


def pool_status(state: PoolSnapshot, plan: Plan, now: datetime) -> PoolStatus:
    pool, before = state.pool, state.pool.status
    updated = sum(not state.outdated(m) and not state.stale(m) for m in state.alive)
    available = sum(m.available for m in state.alive)
    whole = updated == len(state.alive) == pool.spec.replicas
    fresh = before.model_copy(
        update={
            "observed_generation": pool.generation,
            "replicas": len(state.alive),
            "ready_replicas": sum(m.ready for m in state.alive),
            "updated_replicas": updated,
            "available_replicas": available,
            "unavailable_replicas": max(pool.spec.replicas, len(state.alive)) - available,
            "terminating_replicas": len(state.leaving),
            "current_revision": state.revision.name if whole else before.current_revision,
            "update_revision": state.revision.name,
            "label_selector": f"{meta.POOL}={pool.name}",
            "kept_disks": len(state.kept),
            "kept": tuple(RetainedDiskStatus(name=each.name, vm=each.kept_for) for each in _by_name(state)),
            "healing": healing_status(state, healed(plan), now),
            "conditions": tuple(_stamped(_conditions(state, plan, now), pool, now)),
        }
    )
    return fresh.model_copy(update={"last_progress_time": last_progress(state, fresh, _text(now))})


def _by_name(state: PoolSnapshot) -> list[RetainedDisk]:
    return sorted(state.kept, key=lambda disk: disk.name)[:KEPT_SAID]


def invalid_spec_status(pool: InvalidSpec, now: datetime) -> PoolStatus:
    """What was known stays; that nothing is done any more is said where people look for it."""
    said = (
        _say("Progressing", False, "InvalidSpec", pool.problem),
        _say("ReplicaFailure", True, "InvalidSpec", pool.problem),
    )
    left = [c for c in pool.status.conditions if c.type not in {each.type for each in said}]
    conditions = (*left, *_stamped(said, pool, now))
    return pool.status.model_copy(update={"observed_generation": pool.generation, "conditions": conditions})


def _conditions(state: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    pool = state.pool
    running = [m for m in state.alive if m.meant_to_run]
    missing = state.missing
    down = missing + sum(not m.available for m in running)
    limit = pool.max_unavailable
    if down <= limit and (not missing or state.alive):
        yield _say("Available", True, "EnoughMachines", f"{down} VMs are unavailable, {limit} may be")
    else:
        yield _say("Available", False, "TooManyUnavailable", f"{down} VMs are unavailable, {limit} may be")

    if pool.spec.paused:
        yield _say("Paused", True, "PausedByUser", "spec.paused is true: nothing is done to the pool's VMs")
    else:
        yield _say("Paused", False, "Resumed", "")

    if state.failure:
        yield _say("ReplicaFailure", True, state.failure.reason, state.failure.message)
    else:
        yield _say("ReplicaFailure", False, "NoFailure", "")

    if plan.blocked:
        yield _say("ScaleInBlocked", True, "NoCandidates", plan.blocked)
    else:
        yield _say("ScaleInBlocked", False, "NotBlocked", "")

    if state.overlapping:
        yield _say("DisksShared", True, "DiskOfAnotherMachine", _overlapping(state))
    else:
        yield _say("DisksShared", False, "DisksApart", "")

    yield from _healing(state, plan, now)
    yield _progressing(state, now)


def _overlapping(state: PoolSnapshot) -> str:
    found = sorted(state.overlapping.items())
    named = "; ".join(f"VM {name} has disk {disk}" for name, disk in found[:NAMES_SAID])
    more = f" and {len(found) - NAMES_SAID} more" if len(found) > NAMES_SAID else ""
    return f"{named}{more}: two that write to one disk destroy it, so stop all of them but one"


def healed(plan: Plan) -> tuple[str, ...]:
    return tuple(each.name for each in plan.actions if isinstance(each, Heal))


def _healing(state: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    """Left out while there was never anything to heal."""
    found = healing_status(state, healed(plan), now)
    if found is None:
        return
    if found.breaker is not None and found.breaker.open:
        yield _say("Healing", False, "TooManyFailing", found.breaker.message)
    elif found.machines:
        names = ", ".join(f"{each.name} ({each.attempts})" for each in found.machines[:NAMES_SAID])
        yield _say("Healing", True, "MachinesReplaced", f"{len(found.machines)} VMs, how often each: {names}")
    else:
        yield _say("Healing", False, "NothingToHeal", "")


def _progressing(state: PoolSnapshot, now: datetime) -> Condition:
    wanted = state.pool.spec.replicas
    if state.failure:
        return _say("Progressing", False, state.failure.reason, state.failure.message)
    if state.pool.spec.paused:
        return _say("Progressing", False, "Paused", "spec.paused is true")
    if reason := deadline_exceeded(state, now):
        return _say("Progressing", False, STALLED, reason)
    if outdated := count_outdated(state):
        return _say("Progressing", True, "MachinesUpdating", f"{outdated} of {len(state.alive)} VMs are not up to date")
    if is_progressing(state) or len(state.alive) > wanted or state.leaving:
        return _say("Progressing", True, "MachinesChanging", f"{len(state.alive)} of {wanted} VMs exist")
    return _say("Progressing", True, "Complete", "all VMs are as they should be")


def _say(kind: str, holds: bool, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True" if holds else "False", reason=reason, message=message)


def _stamped(conditions: Iterable[Condition], pool: Pool | InvalidSpec, now: datetime) -> Iterator[Condition]:
    before, time = pool.status.conditions, _text(now)
    return with_transition_times(conditions, before, generation=pool.generation, now=time, announced=ANNOUNCED)


def _text(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
