"""Records in the log of a pool, and as Events, what others did to its VMs: each change once."""

from collections.abc import Iterable
from datetime import datetime

from controllers.pool.decisions import membership_changed
from controllers.pool.events import PoolEvents
from controllers.pool.evicted_vms import evictions
from controllers.pool.memory import PoolMemory
from controllers.pool.outages import outage_decisions
from controllers.pool.pools import Pool
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.decisions import without_recorded
from controllers.shared.vm import VM

REPORT_SECONDS = 30.0
"""The previous leader has reported older changes of membership."""


def report(
    events: PoolEvents, snapshot: PoolSnapshot, invalid: Iterable[VM], memory: PoolMemory, clock: float, now: datetime
) -> None:
    """`invalid` are the VMs with invalid annotations."""
    _report_scale_in(events, snapshot.pool, invalid, memory)
    _report_membership(events, snapshot.pool, memory, clock, now)
    _report_nodes(events, snapshot, memory, now)


def _report_scale_in(events: PoolEvents, pool: Pool, invalid: Iterable[VM], memory: PoolMemory) -> None:
    found = {(vm.uid, vm.scale_in): vm for vm in invalid}
    for each in found.keys() - memory.reported_scale_in:
        events.invalid_scale_in(pool, found[each])
    memory.reported_scale_in = frozenset(found)


def _report_membership(events: PoolEvents, pool: Pool, memory: PoolMemory, clock: float, now: datetime) -> None:
    for name, (attached, at, uid) in memory.membership_changes.items():
        if clock - at < REPORT_SECONDS:
            events.membership_changed(pool, name, attached=attached)
            memory.last_status_write.record([membership_changed(name, uid, now, attached=attached)])
    memory.membership_changes = {}


def _report_nodes(events: PoolEvents, snapshot: PoolSnapshot, memory: PoolMemory, now: datetime) -> None:
    """Records the outages of nodes and their ends, and the VMs that drains have stopped. The store may not show the
    last ones yet."""
    last, stored = memory.last_status_write, snapshot.pool.status.decisions
    known = (*stored, *without_recorded(last.decisions, stored))
    last.record(outage_decisions(snapshot, known, now))
    stopped = without_recorded(evictions(snapshot, now), known)
    for each in stopped:
        events.evicted(snapshot.pool, each)
    last.record(stopped)
