"""Which pools can give VMs disks by a former template, as an update is held back or was aborted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from poolhouse.runtime.resource import Key

MAX_POOLS = 10
"""So many pools with one disk name are reconciled when a VM gets or loses such a disk."""


@dataclass
class FormerDisks:
    _pools: dict[Key, dict[Key, None]] = field(default_factory=dict)
    _disks: dict[Key, frozenset[Key]] = field(default_factory=dict)

    def set(self, pool: Key, disks: frozenset[Key]) -> None:
        """Remembers the names that only the former template of the pool has. Empty: none, or the pool is gone."""
        known = self._disks.pop(pool, frozenset())
        for disk in known - disks:
            pools = self._pools[disk]
            del pools[pool]
            if not pools:
                del self._pools[disk]
        for disk in disks - known:
            self._pools.setdefault(disk, {})[pool] = None
        if disks:
            self._disks[pool] = disks

    def pools(self, disk: Key) -> Iterator[Key]:
        yield from islice(self._pools.get(disk, ()), MAX_POOLS)
