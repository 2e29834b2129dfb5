"""Merges run strategies. Users decide whether a VM runs, until the author of the template decides otherwise."""

from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM

RUNNING = frozenset({"Always", "RerunOnFailure", "Once", "WaitAsReceiver"})
"""run strategies with which KubeVirt starts a new VM"""
HALTED = "Halted"


def merge_run_strategy(live: str, base: str, new: str) -> str:
    """The run strategy of a VM that gets a template with the run strategy `new` in place of one with `base`.

    A VM that a user has started or stopped stays so, unless the author changes from a run strategy that runs VMs to
    one that halts them, or back."""
    if base == new:
        return live
    author_decides = _runs(base) is not _runs(new)
    return new if author_decides or _runs(live) is _runs(base) else live


def stops(live: str, base: str, new: str) -> bool:
    """Whether KubeVirt stops the guest when the VM gets the template."""
    return live != HALTED and merge_run_strategy(live, base, new) == HALTED


def starts(live: str, base: str, new: str) -> bool:
    """Whether KubeVirt starts a halted VM when it gets the template."""
    return live == HALTED and merge_run_strategy(live, base, new) in RUNNING


def update_halts(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the update of the VM stops its guest, because the author has changed the run strategy."""
    has = snapshot.revisions_by_label.get(vm.revision)
    if has is None or vm.vmi is None or vm.vmi.final:
        return False
    return stops(vm.run_strategy, has.run_strategy, snapshot.revision.run_strategy)


def update_starts(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the update of the halted VM starts a guest, because the author has changed the run strategy."""
    has = snapshot.revisions_by_label.get(vm.revision)
    return has is not None and starts(vm.run_strategy, has.run_strategy, snapshot.revision.run_strategy)


def _runs(strategy: str) -> bool | None:
    """Whether the VM runs by its run strategy; None for `Manual`, where users start and stop it."""
    return True if strategy in RUNNING else False if strategy == HALTED else None
