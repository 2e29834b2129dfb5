"""The pools that have written about disks of a name, while the stores may not show what they have written."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from poolhouse.runtime.resource import Key


@dataclass
class DiskWriters:
    """Pools by the names that their disks had when they wrote. A pool may have other names, or be gone, before the
    stores show its VMs."""

    _pools: dict[Key, set[str]] = field(default_factory=dict)
    _disks: dict[str, frozenset[Key]] = field(default_factory=dict)

    def note(self, pool_uid: str, disks: frozenset[Key]) -> None:
        self._disks[pool_uid] = disks | self._disks.get(pool_uid, frozenset())
        for disk in disks:
            self._pools.setdefault(disk, set()).add(pool_uid)

    def of(self, disks: Iterable[Key]) -> set[str]:
        """The UIDs of the pools that have written about one of these disks."""
        return set[str]().union(*(self._pools.get(disk, ()) for disk in disks))

    def forget(self, pool_uid: str) -> None:
        """Forgets a pool whose writes the stores show."""
        for disk in self._disks.pop(pool_uid, ()):
            pools = self._pools[disk]
            pools.discard(pool_uid)
            if not pools:
                del self._pools[disk]
