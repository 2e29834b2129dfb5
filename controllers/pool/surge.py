"""Decides which VMs `maxSurge` replaces by new VMs, how many VMs the pool may have meanwhile, and which it deletes.

The pool creates a VM with the new template under a free name. When it is available, the pool deletes a VM with the old
template. At least `replicas` VMs stay available, apart from those that were not available before.
"""

from datetime import datetime

from controllers.pool import live_updates
from controllers.pool.selection import is_behind
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.pool.update_limit import resolve, update_limit
from controllers.pool.windows import refusal_of_updates
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.kinds.pool_strategies import UpdateProactive


def is_replaced(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the update replaces this VM by another one. A protected VM, and a VM without the pool's name, is updated
    in place, like a VM that needs neither a restart nor new disks, and one that KubeVirt changes while it runs."""
    if not snapshot.pool.surges or vm.protected or vm.base_name != snapshot.pool.name:
        return False
    if snapshot.outdated_disks(vm):
        return True
    restarts = live_updates.needs_restart(snapshot, vm) and not live_updates.is_live(snapshot, vm)
    return restarts and is_behind(snapshot, vm)


@once
def extra_vms(snapshot: PoolSnapshot, now: datetime) -> int:
    """How many VMs above `replicas` the pool may have now."""
    if not snapshot.pool.surges:
        return 0
    strategy, replicas = snapshot.pool.spec.update_strategy.chosen, snapshot.pool.spec.replicas
    assert isinstance(strategy, UpdateProactive)
    assert strategy.max_surge is not None
    replaced = sum(is_replaced(snapshot, vm) for vm in snapshot.counted)
    outdated = sum(is_replaced(snapshot, vm) or snapshot.outdated(vm) for vm in snapshot.counted)
    # Steps and a partition let this many VMs keep the old template.
    kept = max(0, replicas - update_limit(snapshot, now).allowed)
    allowed = max(0, min(resolve(strategy.max_surge, replicas), replaced, outdated - kept))
    # VMs that exist already wait for the next maintenance window with the VMs that they replace.
    return min(allowed, max(0, len(snapshot.counted) - replicas)) if refusal_of_updates(snapshot, now) else allowed


@once
def replacement_reason(snapshot: PoolSnapshot) -> str:
    """Why a VM that is replaced still exists."""
    available, replicas = sum(vm.available for vm in snapshot.active), snapshot.pool.spec.replicas
    return f"a new VM replaces it: {count_noun(available, 'VM', 'is', 'are')} available, {replicas} must stay available"
