"""Too few VMs: which ones are made."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from controllers.pool.actions import Action, Create, SaveRevision
from controllers.pool.autohealing import was_healed
from controllers.pool.machine import VM
from controllers.pool.naming import free_ordinals, name_of
from controllers.pool.snapshot import PoolSnapshot

PATIENCE = timedelta(minutes=5)
"""How long the name of a VM that is being deleted is waited for. After that, another ordinal takes its place."""


def scale_out(state: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Gaps first, then new ordinals. The name of a VM that is on its way out is waited for: it comes back with the
    disks that were kept for it, and a pool that is scaled in and out again has the same names as before."""
    wanted = state.pool.spec.replicas
    missing = wanted - len(state.alive) - len(_awaited(state, now))
    if missing <= 0 or state.shared:
        return
    if not state.saved:
        yield SaveRevision(state.revision.name, state.revision.number, "the template is new")
    reason = f"{len(state.alive)} of {wanted} VMs exist"
    kept_for = {disk.kept_for for disk in state.kept}
    found = []
    for ordinal in free_ordinals(state.taken, min(missing, state.burst)):
        name = name_of(state.pool.name, ordinal)
        anew = (was_healed(state, name) or name in state.gone) and name not in kept_for
        found.append(Create(name, ordinal, state.revision.name, reason, anew))
    # A first one that is refused holds up all that come after it: those that may find old disks come last.
    yield from sorted(found, key=lambda create: create.anew)


def seconds_until_a_name_is_given_up(state: PoolSnapshot, now: datetime) -> float | None:
    if state.pool.spec.replicas <= len(state.alive):
        return None
    ends = [since(m, now) + PATIENCE - now for m in _awaited(state, now)]
    return min(ends).total_seconds() if ends else None


def since(m: VM, now: datetime) -> datetime:
    """When it was deleted."""
    return datetime.fromisoformat(m.deleted_at) if m.deleted_at else now


def _awaited(state: PoolSnapshot, now: datetime) -> list[VM]:
    return [m for m in state.leaving if now - since(m, now) < PATIENCE]
