"""Failure domains: scale-in balances zones where the selection policy leaves a choice, and updates stop VMs of one zone
at a time.

The zone of a VM is the label `failureDomains.topologyKey` of its node. A VM without a node, or on a node without the
label, has no known zone. A pool whose VMs are in fewer than two known zones has no failure domains.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from controllers.pool.selection import update_has_begun
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import join_names
from controllers.shared.vm import VM

Queues = dict[str | None, deque[tuple[int, VM]]]


def in_zone_order(snapshot: PoolSnapshot, groups: Iterable[Iterable[VM]]) -> list[VM]:
    """The VMs of the groups in the order of their deletion: group by group, and within a group so that the zones stay
    balanced. There each VM is the first of the fullest zone, after the deletion of those before it. A VM without a
    known zone keeps its place among the first VMs of the fullest zones."""
    if not has_zones(snapshot):
        return list(chain.from_iterable(groups))
    left = Counter(snapshot.zones.get(vm.name) for vm in snapshot.active)
    return [vm for group in groups for vm in _picks(_queues(snapshot, group), left)]


def _queues(snapshot: PoolSnapshot, group: Iterable[VM]) -> Queues:
    """The VMs of each zone, with their places in the group."""
    queues: Queues = {}
    for place, vm in enumerate(group):
        queues.setdefault(snapshot.zones.get(vm.name), deque()).append((place, vm))
    return queues


def _picks(queues: Queues, left: Counter[str | None]) -> Iterator[VM]:
    while waiting := {zone: queue for zone, queue in queues.items() if queue}:
        most = max((left[zone] for zone in waiting if zone), default=0)
        fullest = [zone for zone in waiting if not zone or left[zone] == most]
        zone = min(fullest, key=lambda zone: waiting[zone][0][0])
        left[zone] -= 1
        yield waiting[zone].popleft()[1]


def has_zones(snapshot: PoolSnapshot) -> bool:
    return len({zone for vm in snapshot.active if (zone := snapshot.zones.get(vm.name))}) > 1


@dataclass(frozen=True)
class ZoneGuard:
    """Refuses to stop a VM while VMs of another zone are down because the pool stopped or created them."""

    zones: Mapping[str, str]
    """zones by name of the VM; empty if the pool has no failure domains"""
    down: frozenset[str] = frozenset()
    """zones with such VMs"""
    unknown: tuple[str, ...] = ()
    """names of such VMs without a known zone"""

    @classmethod
    def of(cls, snapshot: PoolSnapshot) -> ZoneGuard:
        if not has_zones(snapshot):
            return cls({})
        down = [vm for vm in snapshot.active if _is_down(snapshot, vm)]
        zones = frozenset(snapshot.zones[vm.name] for vm in down if vm.name in snapshot.zones)
        return cls(snapshot.zones, zones, tuple(vm.name for vm in down if vm.name not in snapshot.zones))

    def refusal(self, vm: VM) -> str:
        """Why this VM may not be stopped now, or "". A VM that is down already may be."""
        zone = self.zones.get(vm.name)
        if not vm.available or zone is None:
            return ""
        if self.unknown:
            return f"the zone of {join_names(self.unknown)} is not known yet, and it is not available"
        if self.down and zone not in self.down:
            return f"VMs in zone {', '.join(sorted(self.down))} are not available, and it is in zone {zone}"
        return ""

    def without(self, vm: VM) -> ZoneGuard:
        zone = self.zones.get(vm.name)
        return replace(self, down=self.down | {zone}) if zone is not None else self


def _is_down(snapshot: PoolSnapshot, vm: VM) -> bool:
    return vm.should_run and not vm.terminating and not vm.available and update_has_begun(snapshot, vm)
