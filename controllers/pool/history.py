"""Revisions that nobody needs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.actions import Action, PruneRevision
from controllers.pool.snapshot import PoolSnapshot


def prune_revisions(state: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Those that a VM has or runs are kept, and as many others as the pool wants to be able to go back to."""
    needed = {m.revision for m in state.machines} | {m.guest.revision for m in state.machines if m.guest}
    idle = [each for each in state.revisions if each.label not in needed and each.name != state.revision.name]
    oldest_first = sorted(idle, key=lambda each: each.number)
    limit = state.pool.spec.revision_history_limit
    for each in oldest_first[: max(0, len(idle) - limit)]:
        yield PruneRevision(each.name, f"{limit} old revisions are kept")
