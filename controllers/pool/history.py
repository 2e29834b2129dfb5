"""How the updates to the stored revisions of a pool's template ended."""

from datetime import datetime

from controllers.pool.reasons import PoolReason
from controllers.pool.revisions import Revision
from controllers.pool.snapshot import PoolSnapshot
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.pool import MAX_HISTORY, Outcome, RevisionHistory


def history(snapshot: PoolSnapshot, wanted: Revision, complete: bool, now: datetime) -> tuple[RevisionHistory, ...]:
    """The new status.history. `wanted` is the revision of the pool's template; `complete` says that all VMs have it."""
    before = snapshot.pool.status
    stored = {wanted.name, before.current_revision, *(each.name for each in snapshot.revisions)}
    found = {each.revision: each for each in before.history if each.revision in stored}
    last = before.update_revision
    if last and last != wanted.name and last in stored and last not in found:
        # A revision without an entry has not ended yet.
        found[last] = _ended(last, "Superseded", now, message=f"by {wanted.name}")
    known = found.get(wanted.name)
    entry = _outcome(snapshot, wanted.name, complete, known, now)
    if entry != known:
        found.pop(wanted.name, None)
        if entry is not None:
            found[wanted.name] = entry
    return tuple(found.values())[-MAX_HISTORY:]


def _outcome(
    snapshot: PoolSnapshot, revision: str, complete: bool, known: RevisionHistory | None, now: datetime
) -> RevisionHistory | None:
    """How the update to the revision ended; None while it goes on. `known` is its entry in the stored history."""
    if snapshot.aborted is not None:
        _, abort = snapshot.aborted
        by_user = abort.reason == PoolReason.ABORTED
        return RevisionHistory(
            revision=revision,
            outcome="Aborted" if by_user else "RolledBack",
            reason="" if by_user else abort.reason,
            message=abort.message,
            time=abort.time,
        )
    if known is not None and known.outcome == "Complete":
        return known if complete or snapshot.pool.status.current_revision == revision else None
    return _ended(revision, "Complete", now) if complete else None


def _ended(revision: str, outcome: Outcome, now: datetime, message: str = "") -> RevisionHistory:
    return RevisionHistory(revision=revision, outcome=outcome, message=message, time=format_time(now))
