"""Remembers the disks of VMs that are gone, because the watches of DataVolumes and claims may be behind that of VMs.

For a moment, the stores then show nobody who has such a disk, though another pool may have retained it. Before a VM
gets a disk of this name, the controller looks for the disk.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from controllers.shared.names import name_of, parent_and_ordinal
from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import Store


class GoneDisk(NamedTuple):
    template: tuple[Key, ...]
    """the namespace with the name in a template: `root` for `root-3`"""
    ordinal: int
    gone_at: float


@dataclass
class GoneDisks:
    seconds: float
    """how long they are remembered"""
    _disks: Store[GoneDisk] = field(default_factory=lambda: Store({"template": attrgetter("template")}))
    """in the order of their times"""

    def note(self, disks: Iterable[Key], now: float) -> None:
        """Records the disks of a VM that is gone now."""
        while (first := next(iter(self._disks.keys()), None)) and self._is_over(self._disks.get(first), now):
            self._disks.drop(first)
        for namespace, disk in disks:
            name, ordinal = parent_and_ordinal(disk)
            if ordinal is not None:
                self._disks.put((namespace, disk), GoneDisk(((namespace, name),), ordinal, now))

    def names(self, pool: str, templates: Iterable[Key], now: float) -> frozenset[str]:
        """The names of the pool's VMs that would get one of the disks, by the names of the disks in its template."""
        found = (each for template in templates for each in self._disks.by("template", template))
        return frozenset(name_of(pool, each.ordinal) for each in found if not self._is_over(each, now))

    def _is_over(self, disk: GoneDisk | None, now: float) -> bool:
        return disk is None or now - disk.gone_at >= self.seconds
