"""Keeps two pools from using one name of a disk at the same time, while the stores do not show what one has written."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from poolhouse.runtime.resource import Key

Disks = frozenset[Key]
"""names of the disks in a template, with the namespace"""


@dataclass
class DiskWriters:
    """Which pools write VMs with which disks, or have written them. The template of such a pool may have other disks
    before the stores show the VMs."""

    _pools: dict[Key, set[str]] = field(default_factory=dict)
    _disks: dict[str, Disks] = field(default_factory=dict)
    _writing: dict[str, Disks] = field(default_factory=dict)
    """the disks of the pools that write now"""
    _plans: list[set[Key]] = field(default_factory=list)
    """for each plan that is being made, the disks of the pools that have begun to write since"""

    @contextmanager
    def planning(self) -> Iterator[set[Key]]:
        """The disks of the pools that begin to write in this time. A plan that uses one of them must be dropped."""
        written = set[Key]()
        self._plans.append(written)
        try:
            yield written
        finally:
            self._plans = [each for each in self._plans if each is not written]

    @contextmanager
    def writing(self, pool_uid: str, disks: Disks) -> Iterator[None]:
        self.note(pool_uid, disks)
        self._writing[pool_uid] = disks
        try:
            yield
        finally:
            del self._writing[pool_uid]

    def note(self, pool_uid: str, disks: Disks) -> None:
        self._disks[pool_uid] = disks | self._disks.get(pool_uid, frozenset())
        for disk in disks:
            self._pools.setdefault(disk, set()).add(pool_uid)
        for written in self._plans:
            written.update(disks)

    def of(self, disks: Iterable[Key]) -> set[str]:
        """The UIDs of the pools that have written, and had one of these disks."""
        return set[str]().union(*(self._pools.get(disk, ()) for disk in disks))

    def is_another_writing(self, pool_uid: str, disks: Disks) -> bool:
        """Whether another pool with one of these disks writes now."""
        return any(uid != pool_uid and not disks.isdisjoint(written) for uid, written in self._writing.items())

    def forget(self, pool_uid: str) -> None:
        """Forgets a pool whose writes the stores show."""
        for disk in self._disks.pop(pool_uid, ()):
            pools = self._pools[disk]
            pools.discard(pool_uid)
            if not pools:
                del self._pools[disk]
