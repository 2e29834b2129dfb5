"""Disks that a pool has kept and that no pool is there for any more: counted when somebody asks.

They cost money and nobody is going to want them back, but only a person may say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily

from controllers.pool.retained_disks import RetainedDisk
from controllers.pool.snapshot import InvalidSpec, Pool
from runtime.metrics import PREFIX


class OrphanedDisks:
    """A collector of Prometheus over the stores themselves, so that there is no count that could go wrong.

    Every replica has these stores: take the largest of what they say, not the sum.
    """

    def __init__(self, pools: Iterable[Pool | InvalidSpec] = (), kept: Iterable[RetainedDisk] = ()) -> None:
        self._pools, self._kept = pools, kept

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            f"{PREFIX}orphaned_disks",
            "Kept disks of pools that are gone, as each replica sees it.",
            labels=["namespace"],
        )
        for namespace, number in sorted(orphans(self._pools, self._kept).items()):
            family.add_metric([namespace], number)
        yield family


def orphans(pools: Iterable[Pool | InvalidSpec], kept: Iterable[RetainedDisk]) -> Counter[str]:
    """How many, by namespace."""
    known = {pool.uid for pool in pools}
    return Counter(disk.namespace for disk in kept if disk.kept_by not in known)
