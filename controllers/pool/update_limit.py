"""How many VMs may have the new template: the steps and the partition of a proactive update.

Steps are taken in order. A step with `setReplicas` ends when that many VMs have the template and are available. A step
with `pause` ends after its duration, or when a user promotes the update. A step with `analysis` ends when all checks
are successful. The pool's status records the number of steps that are done, so a restart of the controllers neither
repeats nor skips a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controllers.pool.analysis import begun, describe, followed, has_passed, obstacle
from controllers.pool.counts import count_vms
from controllers.pool.reasons import PoolReason
from controllers.pool.revision_content import document_hash
from controllers.pool.snapshot import PoolSnapshot, once
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.int_or_percent import scaled_value
from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.kinds.pool import UpdateProgress
from poolhouse.api.kinds.pool_strategies import UpdateProactive, UpdateStep

ALL = "all"


@dataclass(frozen=True)
class UpdateLimit:
    """The part of an update that is allowed now."""

    allowed: int
    """Number of VMs that may have the new template."""
    progress: UpdateProgress | None = None
    """The new status.update; None without steps."""
    reason: str = ""
    """Why no more VMs may get the template; empty if all may."""
    waits: PoolReason | None = None
    """The reason of the condition Progressing while the update waits: for the end of a pause, or for an analysis."""
    again_seconds: float | None = None
    """Seconds until a pause ends by itself."""


@once
def update_limit(snapshot: PoolSnapshot, now: datetime) -> UpdateLimit:
    pool, strategy = snapshot.pool, snapshot.pool.spec.update_strategy.chosen
    replicas = pool.spec.replicas
    # VMs above `replicas` are those that an update with maxSurge replaces.
    total = replicas if snapshot.pool.surges else max(replicas, len(snapshot.active))
    if snapshot.aborted is not None:
        revision, abort = snapshot.aborted
        before = pool.status.update
        if before is None or before.revision != revision.name:
            before = UpdateProgress(revision=revision.name)
        return UpdateLimit(total, before.model_copy(update={"aborted": abort, "paused_since": None}))
    if not isinstance(strategy, UpdateProactive):
        return UpdateLimit(total)
    steps = strategy.all_steps
    if pool.status.current_revision == snapshot.revision.name:
        # All VMs have had this template, so neither a return to it nor a further VM has steps or a partition.
        return UpdateLimit(total, _all_done(snapshot, steps))
    kept = resolve(strategy.partition, replicas) if strategy.partition is not None else 0
    largest = max(0, total - kept)
    limit = UpdateLimit(largest, reason=f"partition keeps the old template of {count_noun(kept, 'VM')}" if kept else "")
    if not steps:
        return limit
    reached = not any(snapshot.outdated(vm) for vm in snapshot.active)
    if reached and (strategy.analysis is None or snapshot.stable_revision is None):
        return replace(limit, progress=_all_done(snapshot, steps))
    # All VMs have the template, so only their analysis is left.
    return _with_steps(snapshot, strategy, limit, len(steps) - 1 if reached else 0, now)


def update_progress(snapshot: PoolSnapshot, now: datetime) -> UpdateProgress | None:
    """The new status.update. A pool that has had one keeps it, so that an earlier abort does not stay."""
    progress = update_limit(snapshot, now).progress
    if progress is None and snapshot.pool.status.update is not None:
        return UpdateProgress(revision=snapshot.revision.name)
    return progress


def is_analysed(snapshot: PoolSnapshot, now: datetime) -> bool:
    """Whether the update still has an analysis before it, so that it is not complete."""
    strategy, progress = snapshot.pool.spec.update_strategy.chosen, update_limit(snapshot, now).progress
    if snapshot.aborted is not None or not isinstance(strategy, UpdateProactive) or strategy.analysis is None:
        return False
    return progress is not None and progress.steps_done < len(strategy.all_steps)


def hash_steps(steps: Sequence[UpdateStep]) -> str:
    return document_hash({"steps": [each.json() for each in steps]})[:10] if steps else ""


def resolve(value: int | str, replicas: int) -> int:
    """A number or a percentage of VMs, rounded up like `maxSurge` of a Deployment, so that a step has at least one."""
    return min(scaled_value(value, replicas, round_up=True), replicas)


@once
def with_template(snapshot: PoolSnapshot) -> int:
    return sum(not snapshot.outdated(vm) for vm in snapshot.active)


def promoted_steps(annotation: str, revision: str, steps: int) -> int:
    """The number of steps that the annotation poolhouse.dev/promote lets an update of this revision leave. Its text is
    `REVISION=STEPS` or `REVISION=all`; a text for another revision has no effect."""
    name, _, text = annotation.rpartition("=")
    if name != revision:
        return 0
    return steps if text == ALL else int(text) if text.isdecimal() and len(text) < 4 else 0


def _all_done(snapshot: PoolSnapshot, steps: Sequence[UpdateStep]) -> UpdateProgress | None:
    if not steps:
        return None
    return UpdateProgress(revision=snapshot.revision.name, steps_done=len(steps), steps_hash=hash_steps(steps))


def _with_steps(
    snapshot: PoolSnapshot, strategy: UpdateProactive, limit: UpdateLimit, least: int, now: datetime
) -> UpdateLimit:
    """The limit of the present step. The first `least` steps count as done."""
    pool, steps, analysis, before = snapshot.pool, strategy.all_steps, strategy.analysis, snapshot.progress
    promoted = max(least, promoted_steps(pool.promote, snapshot.revision.name, len(steps)))
    done, since, checks = before.steps_done, before.paused_since, followed(snapshot, analysis, now)
    if before.steps_hash != hash_steps(steps[:done]):
        # VMs that have the template keep it; a pause that may have been added before must not be skipped.
        done, since = 0, None
    allowed = limit.allowed
    while done < len(steps):
        step, allowed = steps[done], _allowed(steps[: done + 1], pool.spec.replicas, limit.allowed)
        if done >= promoted:
            if step.analysis is not None and analysis is not None and since is None:
                checks = begun(checks, analysis, now)
            if step.set_replicas is None:
                since = since or format_time(now)
            if not _is_over(snapshot, step, allowed, since, analysis is None or has_passed(checks, analysis), now):
                break
        done, since = done + 1, None
    progress = UpdateProgress(
        revision=snapshot.revision.name,
        steps_done=done,
        steps_hash=hash_steps(steps[:done]),
        paused_since=since,
        checks=checks if done < len(steps) else (),
    )
    if done == len(steps):
        return UpdateLimit(limit.allowed, progress, limit.reason)
    found = _at_step(strategy, progress, allowed, now)
    if reason := obstacle(snapshot):
        with_it = min(found.allowed, with_template(snapshot))
        return replace(found, allowed=with_it, reason=reason, waits=PoolReason.ANALYSIS_INCONCLUSIVE)
    return found


def _is_over(
    snapshot: PoolSnapshot, step: UpdateStep, allowed: int, since: str | None, passed: bool, now: datetime
) -> bool:
    if step.pause is not None and since is not None:
        seconds = step.pause.duration_seconds
        return seconds is not None and now >= parse_time(since) + timedelta(seconds=seconds)
    return passed if step.analysis is not None else _reached(snapshot, allowed)


def _at_step(strategy: UpdateProactive, progress: UpdateProgress, allowed: int, now: datetime) -> UpdateLimit:
    steps = strategy.all_steps
    step, place = steps[progress.steps_done], f"step {progress.steps_done + 1} of {len(steps)}"
    if step.analysis is not None and strategy.analysis is not None:
        reason = f"{place}: the analysis waits for {describe(progress.checks, strategy.analysis)}"
        return UpdateLimit(allowed, progress, reason, PoolReason.ANALYSIS_RUNNING)
    if step.pause is None or progress.paused_since is None:
        return UpdateLimit(allowed, progress, f"{place}: {count_noun(allowed, 'VM', 'gets', 'get')} the template first")
    seconds, paused = step.pause.duration_seconds, PoolReason.UPDATE_PAUSED
    if seconds is None:
        return UpdateLimit(allowed, progress, f"{place}: the update is paused until it is promoted", paused)
    end = parse_time(progress.paused_since) + timedelta(seconds=seconds)
    reason = f"{place}: the update is paused until {format_time(end)}"
    return UpdateLimit(allowed, progress, reason, paused, again_seconds=(end - now).total_seconds())


def _allowed(steps: Sequence[UpdateStep], replicas: int, largest: int) -> int:
    """The number of VMs of the last step with `setReplicas`; 0 before the first."""
    numbers = [step.set_replicas for step in steps if step.set_replicas is not None]
    return min(resolve(numbers[-1], replicas), largest) if numbers else 0


def _reached(snapshot: PoolSnapshot, number: int) -> bool:
    """Whether enough VMs run the template and are available. Halted VMs are available."""
    return count_vms(snapshot).new_and_available >= number
