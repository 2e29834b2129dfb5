"""Disks of VMs that are gone, which may still be there: the garbage collector takes its time, and a finalizer may hold
them for ever.

A VM of the same name must not be made meanwhile, or it would be given what is about to be deleted. For some time its
name is waited for; then another takes its place, and the name is tried again now and then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GONE_SECONDS = 300.0
"""For so long after a VM went away, its disks are looked for before one of its name is made."""
PATIENCE_SECONDS = 300.0
"""How long a name is waited for whose disks stay, and after how long it is tried again."""


@dataclass
class _Name:
    went: float
    held: float | None = None
    """since when it could not be given again"""
    tried: float = 0.0


@dataclass
class DeletedVMs:
    """Of each pool, by its UID, the names of VMs that went."""

    _names: dict[str, dict[str, _Name]] = field(default_factory=dict)

    def went(self, pool: str, name: str, now: float) -> None:
        self._names.setdefault(pool, {})[name] = _Name(now)

    def came(self, pool: str, name: str) -> None:
        self._names.get(pool, {}).pop(name, None)

    def refused(self, pool: str, name: str, now: float) -> None:
        """One of that name was not made, as something of the one before it is still there."""
        known = self._names.setdefault(pool, {}).setdefault(name, _Name(now))
        known.held, known.tried = known.held if known.held is not None else now, now

    def forget(self, pool: str) -> None:
        self._names.pop(pool, None)

    def suspect(self, pool: str, now: float) -> frozenset[str]:
        """Names whose disks must be looked for first."""
        names = self._names.get(pool, {})
        for name in [n for n, each in names.items() if each.held is None and now - each.went >= GONE_SECONDS]:
            del names[name]
        return frozenset(names)

    def passed_over(self, pool: str, now: float) -> frozenset[str]:
        """Names in whose place others are given for now."""
        return frozenset(
            name
            for name, each in self._names.get(pool, {}).items()
            if each.held is not None and now - each.held >= PATIENCE_SECONDS and now - each.tried < PATIENCE_SECONDS
        )
