"""The rule that restarts VMs whose VMI is older than maxLifetimeSeconds."""

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial

from controllers.pool.gates.disruptions import Disruption
from controllers.pool.progress import count_outdated
from controllers.pool.restores import awaits_restore
from controllers.pool.rules.rule import Rule
from controllers.pool.selection import is_behind, may_be_restarted, restart, update_has_begun
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.windows import seconds_until_window_if
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.timestamps import format_time, parse_time, seconds_until_next

JITTER = 0.1
"""Part of the lifetime by which VMs are restarted earlier, so that VMs that started together do not end together."""


def ended(snapshot: PoolSnapshot, now: datetime) -> Iterator[Disruption]:
    """A restart of each VM whose lifetime has ended, the longest ago first. An update restarts VMs that need it, unless
    it waits or its strategy leaves them."""
    found = [(end, vm) for vm in snapshot.active if (end := lifetime_end(snapshot, vm)) is not None and end <= now]
    if found and count_outdated(snapshot, now):
        found = [(end, vm) for end, vm in found if not is_behind(snapshot, vm)]
    for end, vm in sorted(found, key=lambda each: (each[0], each[1].name)):
        begun = not vm.available and update_has_begun(snapshot, vm)
        reason = f"its VMI is older than maxLifetimeSeconds allows since {format_time(end)}"
        yield Disruption(vm, "Lifetime", partial(restart, vm, reason), begun=begun)


def lifetime_end(snapshot: PoolSnapshot, vm: VM) -> datetime | None:
    """When the VM is older than maxLifetimeSeconds. None for a VM that the pool does not restart, or restarts to
    restore its disks."""
    seconds, vmi = snapshot.pool.spec.max_lifetime_seconds, vm.vmi
    if not seconds or vmi is None or not vmi.created_at or vmi.deleting or vmi.final:
        return None
    if vm.terminating or not may_be_restarted(vm) or awaits_restore(snapshot, vm):
        return None
    drawn = int.from_bytes(hashlib.sha256(vmi.uid.encode()).digest()[:4]) / 2**32
    return parse_time(vmi.created_at) + timedelta(seconds=int(seconds * (1 - JITTER * drawn)))


def seconds_until_end(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until the lifetime of the next VM ends. None if no VM has one."""
    if not snapshot.pool.spec.max_lifetime_seconds:
        return None
    return seconds_until_next((lifetime_end(snapshot, vm) for vm in snapshot.active), now)


def _any_ended(snapshot: PoolSnapshot, now: datetime) -> bool:
    return any(ended(snapshot, now))


LIFETIMES = Rule(
    ended, context="its lifetime has ended: ", again=(seconds_until_end, seconds_until_window_if(_any_ended))
)
