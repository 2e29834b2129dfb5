"""Whether a pool gets on, and what is said when it doesn't."""

from __future__ import annotations

from datetime import datetime, timedelta

from controllers.pool.snapshot import PoolSnapshot
from kinds.pool import PoolStatus
from kinds.pool_strategies import UpdateProactive

STALLED = "ProgressDeadlineExceeded"
# What a pool that is stalled does not try, so that it is not refused either.
HELD_BACK = ("FailedUpdate", "FailedRestart")
NAMES_SAID = 5


def count_outdated(state: PoolSnapshot) -> int:
    """How many VMs are not up to date though the pool is to see to it."""
    if not _updates(state):
        return 0
    return sum(state.outdated(m) or state.stale(m) for m in state.alive)


def is_progressing(state: PoolSnapshot) -> bool:
    """The pool is on its way to what its spec says: VMs are missing, not up to date, or not available."""
    return bool(state.missing or count_outdated(state) or not all(m.available for m in state.alive))


def last_progress(state: PoolSnapshot, fresh: PoolStatus, now: str) -> str | None:
    """When the pool last came nearer: more VMs, more that are up to date, more that are available, or a new goal. Where
    all were there and available, when one first was not."""
    before = state.pool.status
    goal = (fresh.update_revision, fresh.observed_generation)
    nearer = (
        before.last_progress_time is None
        or goal != (before.update_revision, before.observed_generation)
        or fresh.replicas > before.replicas
        or fresh.updated_replicas > before.updated_replicas
        or fresh.available_replicas > before.available_replicas
        or (fresh.unavailable_replicas > 0 and _begins(state))
    )
    return now if nearer else before.last_progress_time


def deadline(state: PoolSnapshot) -> datetime | None:
    status = state.pool.status
    known = status.update_revision == state.revision.name and status.observed_generation == state.pool.generation
    if state.pool.spec.paused or not known or status.last_progress_time is None or _begins(state):
        return None
    seconds = timedelta(seconds=state.pool.spec.progress_deadline_seconds)
    return datetime.fromisoformat(status.last_progress_time) + seconds


def deadline_exceeded(state: PoolSnapshot, now: datetime) -> str:
    """Why no more VMs are updated or restarted, or nothing."""
    end = deadline(state)
    down = [m for m in state.alive if m.meant_to_run and not m.available]
    # One that is yet to be updated may come up with the new template.
    failing = [m for m in down if not (_updates(state) and state.outdated(m))]
    if end is None or now < end or not (failing or state.missing):
        return ""
    names = ", ".join(f"{m.name} ({m.state or 'no state'})" for m in failing[:NAMES_SAID])
    more = f" and {len(failing) - NAMES_SAID} more" if len(failing) > NAMES_SAID else ""
    what = f"not available: {names}{more}" if failing else f"{state.missing} VMs are missing"
    return f"no progress for {state.pool.spec.progress_deadline_seconds} s; {what}"


def seconds_until_deadline(state: PoolSnapshot, now: datetime) -> float | None:
    end = deadline(state)
    if end is None or now >= end or not is_progressing(state):
        return None
    return (end - now).total_seconds()


def _begins(state: PoolSnapshot) -> bool:
    """If VMs are missing or down now, it is news: none was at the last look, or what held the pool up is over."""
    before = state.pool.status
    return not before.unavailable_replicas or (_was_held(before) and not (state.pool.spec.paused or state.failure))


def _was_held(status: PoolStatus) -> bool:
    """Paused, or refused by the API server what it would try at any time."""
    own = (STALLED, *HELD_BACK)
    return any(c.type == "Progressing" and c.status == "False" and c.reason not in own for c in status.conditions)


def _updates(state: PoolSnapshot) -> bool:
    return isinstance(state.pool.spec.update_strategy.chosen, UpdateProactive)
