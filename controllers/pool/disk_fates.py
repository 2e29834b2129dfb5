"""Says what happens to the disks of VMs that a pool deletes, before it deletes them."""

from collections.abc import Iterator

from controllers.pool.actions.vms import Delete, Heal
from controllers.pool.simulate import Simulation
from controllers.pool.snapshot import PoolSnapshot
from poolhouse.api.apimachinery.counting import count_noun, join_first
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.pool_lifecycle import RetainedDisks

RETAINED, DELETED = "Retained", "Deleted"


def disk_fates(snapshot: PoolSnapshot, found: Simulation) -> list[Json]:
    """The VMs with disks that the simulation deletes: `vm`, `disks`, and `after`, which is `Retained` or `Deleted`."""
    disks = {vm.uid: list(vm.disks) for vm in snapshot.vms if vm.disks}
    return [
        {"vm": action.name, "disks": disks.pop(action.uid), "after": _fate(action)}
        for step in found.steps
        for action in step.actions
        if isinstance(action, Delete | Heal) and action.uid in disks
    ]


def _fate(action: Delete | Heal) -> str:
    return RETAINED if isinstance(action, Delete) and action.retain_disks else DELETED


def disk_lines(fates: list[Json], limits: RetainedDisks) -> Iterator[str]:
    """Sentences about the disks, each with the names of the first ones."""
    for after, what in ((DELETED, "deleted"), (RETAINED, f"retained {retention(limits)}")):
        names = [name for each in fates if each["after"] == after for name in each["disks"]]
        if names:
            yield f"{count_noun(len(names), 'disk', 'is', 'are')} {what}: {join_first(names, 10)}"


def retention(limits: RetainedDisks) -> str:
    """How long scale-in retains disks."""
    ends = [f"for {limits.ttl_seconds} s (spec.retainedDisks.ttlSeconds)"] if limits.ttl_seconds else []
    if limits.max:
        ends.append(f"while the pool has at most {limits.max} retained disks (spec.retainedDisks.max)")
    return f"{' and '.join(ends) or 'without a time limit'}, for the next VM of the same name"
