"""Keeps two pools from using one name of a disk at the same time, while the stores do not show what one has written."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.resource import Key

WAKE_SECONDS = 0.1
"""Delay after which a pool is reconciled that has waited for another one. A pool may write many times a second."""
PAUSE_SECONDS = 10.0
"""Limit for the wait until another pool has stopped writing, in case that nothing wakes the pool."""

Disks = frozenset[Key]
"""names of the disks in a template, with the namespace"""


@dataclass
class DiskWriters:
    """Which pools create VMs with which disks, or have created them. Before the stores show the VMs, the template of
    such a pool may change, and the pool may be deleted."""

    expectations: Expectations[str]
    enqueue: Callable[[Key, float], None] = field(default=lambda key, seconds: None, compare=False)
    """adds a pool to the queue of reconciles"""
    _pools: dict[Key, set[str]] = field(default_factory=dict)
    _disks: dict[str, Disks] = field(default_factory=dict)
    _writing: dict[str, Disks] = field(default_factory=dict)
    """the disks of the pools that write now"""
    _waiting: dict[str, dict[Key, None]] = field(default_factory=dict)
    """by the UID of a pool, the pools that wait for its writes"""
    _plans: list[set[Key]] = field(default_factory=list)
    """for each plan that is being made, the disks of the pools that have begun to write since"""

    def __post_init__(self) -> None:
        self.expectations.subscribe(self._shown)

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
            if any(self.expectations.open(pool_uid)):
                self._wake(pool_uid)
            else:
                self._shown(pool_uid)

    def note(self, pool_uid: str, disks: Disks) -> None:
        self._disks[pool_uid] = disks | self._disks.get(pool_uid, frozenset())
        for disk in disks:
            self._pools.setdefault(disk, set()).add(pool_uid)
        for written in self._plans:
            written.update(disks)

    def of(self, disks: Iterable[Key]) -> set[str]:
        """The UIDs of the pools that have written, and had one of these disks."""
        return set[str]().union(*(self._pools.get(disk, ()) for disk in disks))

    def pause(self, pool_uid: str, disks: Disks) -> float:
        """The most seconds that a pool waits for another pool that writes one of these disks; 0 if none does."""
        writes = any(uid != pool_uid and not disks.isdisjoint(written) for uid, written in self._writing.items())
        return PAUSE_SECONDS if writes else 0.0

    def wait(self, key: Key, pool_uids: Iterable[str]) -> None:
        """Enqueues the pool when one of the others, which `of` has returned, stops writing, and when the stores show
        its writes."""
        for uid in pool_uids:
            self._waiting.setdefault(uid, {})[key] = None

    def _wake(self, pool_uid: str) -> None:
        for key in self._waiting.pop(pool_uid, ()):
            self.enqueue(key, WAKE_SECONDS)

    def _shown(self, pool_uid: str) -> None:
        """Forgets a pool whose writes the stores show, or for whose writes nobody waits any longer."""
        if pool_uid in self._writing:
            return
        for disk in self._disks.pop(pool_uid, ()):
            pools = self._pools[disk]
            pools.discard(pool_uid)
            if not pools:
                del self._pools[disk]
        self._wake(pool_uid)
