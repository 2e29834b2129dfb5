"""What the controller remembers of one pool between reconciles. Everything is dropped when the pool is gone."""

from __future__ import annotations

from dataclasses import dataclass, field

from controllers.shared.status_writer import LastWrite
from controllers.shared.write_batches import Failure
from kinds.pool import Healing

CHECK_SECONDS = 300.0
"""For so long after the deletion of a VM, its disks are looked for before a VM of its name is created."""
RETRY_SECONDS = 300.0
"""After so long, another name takes the place of a name whose disks stay; the name is tried again as often."""


@dataclass
class _Name:
    deleted_at: float
    blocked_since: float | None = None
    """since when the name could not be used again"""
    tried_at: float = 0.0


@dataclass
class DeletedVMs:
    """Names of deleted VMs whose disks may still exist.

    The garbage collector takes its time, and a finalizer may hold a disk forever. A VM of the same name must not be
    created meanwhile, or it would get a disk that is about to be deleted."""

    _names: dict[str, _Name] = field(default_factory=dict)

    def deleted(self, name: str, now: float) -> None:
        self._names[name] = _Name(now)

    def created(self, name: str) -> None:
        self._names.pop(name, None)

    def blocked(self, name: str, now: float) -> None:
        """A VM of this name was not created, because a disk of its predecessor still exists."""
        known = self._names.setdefault(name, _Name(now))
        known.blocked_since = known.blocked_since if known.blocked_since is not None else now
        known.tried_at = now

    def to_check(self, now: float) -> frozenset[str]:
        """Names whose disks must be looked for before a VM is created."""
        names = self._names
        for name in [n for n, e in names.items() if e.blocked_since is None and now - e.deleted_at >= CHECK_SECONDS]:
            del names[name]
        return frozenset(names)

    def to_skip(self, now: float) -> frozenset[str]:
        """Names in whose place others are used for now."""
        return frozenset(
            name
            for name, each in self._names.items()
            if each.blocked_since is not None
            and now - each.blocked_since >= RETRY_SECONDS
            and now - each.tried_at < RETRY_SECONDS
        )


@dataclass
class PoolMemory:
    last_status_write: LastWrite = field(default_factory=LastWrite)
    failure: Failure | None = None
    healing: Healing | None = None
    """status.healing as written before VMs were replaced; the store may not show it yet"""
    deleted_vms: DeletedVMs = field(default_factory=DeletedVMs)
    reported_scale_in: frozenset[tuple[str, str]] = frozenset()
    """invalid values of poolhouse.dev/scale-in with an event, by UID of the VM"""
    membership_changes: dict[str, tuple[bool, float]] = field(default_factory=dict)
    """VMs that were attached (True) or detached, and when, until an event reports it"""
