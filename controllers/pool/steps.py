"""How many VMs may have the new template: the steps and the partition of a proactive update.

Steps are taken in order. A step with `setReplicas` ends when that many VMs have the template and are available. A step
with `pause` ends after its duration, or when a user promotes the update. The pool's status records the number of steps
that are done, so a restart of the controllers neither repeats nor skips a step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from apimachinery.timestamps import format_time, parse_time
from controllers.pool.observe import PoolSnapshot
from controllers.pool.revisions import Revision, content_hash
from controllers.pool.selection import is_behind
from kinds.pool import UpdateProgress
from kinds.pool_strategies import PauseStep, UpdateProactive, UpdateStep

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
    paused: bool = False
    """Whether the update waits for the end of a pause."""
    again_seconds: float | None = None
    """Seconds until a pause ends by itself."""


def update_limit(snapshot: PoolSnapshot, now: datetime) -> UpdateLimit:
    strategy, replicas = snapshot.pool.spec.update_strategy.chosen, snapshot.pool.spec.replicas
    total = max(replicas, len(snapshot.active))
    if snapshot.aborted is not None:
        revision, abort = snapshot.aborted
        before = snapshot.pool.status.update
        done = before.steps_done if before is not None and before.revision == revision.name else 0
        return UpdateLimit(total, UpdateProgress(revision=revision.name, steps_done=done, aborted=abort))
    if not isinstance(strategy, UpdateProactive):
        return UpdateLimit(total)
    kept = resolve(strategy.partition, replicas) if strategy.partition is not None else 0
    largest = max(0, total - kept)
    limit = UpdateLimit(largest, reason=f"partition keeps the old template of {kept} VMs" if kept else "")
    return _with_steps(snapshot, strategy.steps, limit, now) if strategy.steps else limit


def update_progress(snapshot: PoolSnapshot, now: datetime) -> UpdateProgress | None:
    """The new status.update. A pool that has had one keeps it, so that an earlier abort does not stay."""
    progress = update_limit(snapshot, now).progress
    if progress is None and snapshot.pool.status.update is not None:
        return UpdateProgress(revision=snapshot.revision.name)
    return progress


def hash_steps(steps: Sequence[UpdateStep]) -> str:
    return content_hash({"steps": [each.json() for each in steps]})[:10] if steps else ""


def resolve(value: int | str, replicas: int) -> int:
    """A number or a percentage of VMs, rounded up like `maxSurge` of a Deployment, so that a step has at least one."""
    if isinstance(value, int):
        return min(value, replicas)
    return math.ceil(int(value.removesuffix("%")) * replicas / 100)


def with_template(snapshot: PoolSnapshot) -> int:
    return sum(not snapshot.outdated(vm) for vm in snapshot.active)


def stable_revision(snapshot: PoolSnapshot) -> Revision | None:
    """The last revision that all VMs had; None if it is the pool's own, or is not stored any more."""
    name = snapshot.pool.status.current_revision
    return next((each for each in snapshot.revisions if each.name == name != snapshot.revision.name), None)


def promoted_steps(annotation: str, revision: str, steps: int) -> int:
    """The number of steps that the annotation poolhouse.dev/promote lets an update of this revision leave. Its text is
    `REVISION=STEPS` or `REVISION=all`; a text for another revision has no effect."""
    name, _, text = annotation.rpartition("=")
    if name != revision:
        return 0
    return steps if text == ALL else int(text) if text.isdecimal() and len(text) < 4 else 0


def _with_steps(snapshot: PoolSnapshot, steps: Sequence[UpdateStep], limit: UpdateLimit, now: datetime) -> UpdateLimit:
    pool, revision = snapshot.pool, snapshot.revision.name
    before = pool.status.update
    if before is None or before.revision != revision:
        before = UpdateProgress(revision=revision)
    if not any(snapshot.outdated(vm) for vm in snapshot.active):
        # A new pool, or an update that has reached all VMs.
        progress = UpdateProgress(revision=revision, steps_done=len(steps), steps_hash=hash_steps(steps))
        return UpdateLimit(limit.allowed, progress, limit.reason)
    promoted = promoted_steps(pool.promote, revision, len(steps))
    done, since = before.steps_done, before.paused_since
    if before.steps_hash != hash_steps(steps[:done]):
        # VMs that have the template keep it; a pause that may have been added before must not be skipped.
        done, since = 0, None
    allowed = limit.allowed
    while done < len(steps):
        pause, allowed = steps[done].pause, _allowed(steps[: done + 1], pool.spec.replicas, limit.allowed)
        if pause is not None:
            since = since or format_time(now)
        is_over = _reached(snapshot, allowed) if pause is None or since is None else _has_ended(pause, since, now)
        if done >= promoted and not is_over:
            break
        done, since = done + 1, None
    progress = UpdateProgress(
        revision=revision, steps_done=done, steps_hash=hash_steps(steps[:done]), paused_since=since
    )
    if done == len(steps):
        return UpdateLimit(limit.allowed, progress, limit.reason)
    return _at_step(steps, progress, allowed, now)


def _at_step(steps: Sequence[UpdateStep], progress: UpdateProgress, allowed: int, now: datetime) -> UpdateLimit:
    step, place = steps[progress.steps_done], f"step {progress.steps_done + 1} of {len(steps)}"
    if step.pause is None or progress.paused_since is None:
        return UpdateLimit(allowed, progress, f"{place}: {allowed} VMs get the template first")
    seconds = step.pause.duration_seconds
    if seconds is None:
        return UpdateLimit(allowed, progress, f"{place}: the update is paused until it is promoted", paused=True)
    end = parse_time(progress.paused_since) + timedelta(seconds=seconds)
    reason = f"{place}: the update is paused until {format_time(end)}"
    return UpdateLimit(allowed, progress, reason, paused=True, again_seconds=(end - now).total_seconds())


def _has_ended(pause: PauseStep, since: str, now: datetime) -> bool:
    seconds = pause.duration_seconds
    return seconds is not None and now >= parse_time(since) + timedelta(seconds=seconds)


def _allowed(steps: Sequence[UpdateStep], replicas: int, largest: int) -> int:
    """The number of VMs of the last step with `setReplicas`; 0 before the first."""
    numbers = [step.set_replicas for step in steps if step.set_replicas is not None]
    return min(resolve(numbers[-1], replicas), largest) if numbers else 0


def _reached(snapshot: PoolSnapshot, number: int) -> bool:
    """Whether enough VMs run the template and are available. Halted VMs are available."""
    return sum(not is_behind(snapshot, vm) and vm.available for vm in snapshot.active) >= number
