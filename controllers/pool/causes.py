"""Why VMs of a pool are unavailable, for users: VMs with the same cause are one sentence with their number.

Lost nodes come first, and then the causes of most VMs. A message is that of the first VM. The texts stay while KubeVirt
tries again, because each new text is a write of the status.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from controllers.pool.outages import describe_lost_nodes, lost_vms
from controllers.pool.progress import wait_for_disks
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.shared.conditions import join_names, names_and_verb
from controllers.shared.names import MAX_NAME, free_ordinals, name_of
from controllers.shared.readiness import exceeds_quota
from controllers.shared.vm import DATA_VOLUME_ERROR, VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.kinds.pool import FailingStatus

IMAGE_FAILURES = frozenset({"ErrImagePull", "ImagePullBackOff"})
MAX_CAUSES = 3


@dataclass(frozen=True)
class Cause:
    """What keeps a VM from starting."""

    key: str
    """the same for VMs with the same cause"""
    message: str
    fails: bool = True
    """False for a disk that is not ready yet"""


@once
def causes(snapshot: PoolSnapshot) -> tuple[tuple[Cause, tuple[str, ...]], ...]:
    """The causes with the names of their VMs, first failures and those of most VMs. Lost nodes are none of them."""
    lost, found = lost_vms(snapshot), dict[str, tuple[Cause, list[str]]]()
    for vm in sorted(snapshot.active, key=lambda vm: (vm.ordinal or 0, vm.name)):
        if vm.should_run and not vm.available and vm.uid not in lost and (cause := cause_of(snapshot, vm)):
            found.setdefault(cause.key, (cause, []))[1].append(vm.name)
    return tuple((cause, tuple(names)) for cause, names in sorted(found.values(), key=_worst_first))


def _worst_first(found: tuple[Cause, list[str]]) -> tuple[bool, int]:
    cause, names = found
    return not cause.fails, -len(names)


def cause_of(snapshot: PoolSnapshot, vm: VM) -> Cause | None:
    """What keeps a VM from starting that should run; None if nothing is known to."""
    reason, message = (vm.vmi.start_failure, vm.vmi.message) if vm.vmi is not None else ("", "")
    if not IMAGE_FAILURES.isdisjoint((reason, vm.printable_status)):
        return Cause("image", "its image cannot be pulled")
    if reason:
        return Cause(reason, f"{reason}: {message}" if message else reason)
    if vm.start_refusal:
        return Cause("quota" if exceeds_quota(vm.start_refusal) else "refusal", vm.start_refusal)
    if unready := snapshot.unready_disks_of(vm):
        disk, state = next(iter(unready.items()))
        failed = vm.printable_status == DATA_VOLUME_ERROR
        key = f"{vm.printable_status}/{state.phase}" if failed else state.phase
        return Cause(key, f"DataVolume {state.describe(disk)}", failed)
    if vm.start_failures:
        return Cause("start", "its VMI ends before it runs")
    status = vm.printable_status
    return Cause(status, status) if status in get_args(FailingStatus) else None


def count_failing(snapshot: PoolSnapshot) -> int:
    return sum(len(names) for cause, names in causes(snapshot) if cause.fails)


def why_not_started(snapshot: PoolSnapshot) -> str:
    """The nodes that are not ready, and what keeps VMs from starting. Empty if nothing is known to. If a VM is missing,
    why it does not exist."""
    return "; ".join(filter(None, (describe_lost_nodes(snapshot), *_sentences(snapshot))))


def others_with_cause(snapshot: PoolSnapshot, vm: VM) -> int:
    """How many other VMs do not start for the same cause."""
    return next((len(names) - 1 for _, names in causes(snapshot) if vm.name in names), 0)


def _sentences(snapshot: PoolSnapshot) -> Iterator[str]:
    found = causes(snapshot)
    if not found and snapshot.missing:
        yield _why_missing(snapshot)
    for cause, names in found[:MAX_CAUSES]:
        if len(names) == 1:
            who = f"{names[0]} {'does not start' if cause.fails else 'waits'}"
        else:
            who = f"{count_noun(len(names), 'VM')} {'do not start' if cause.fails else 'wait'}, such as {names[0]}"
        yield f"{who}: {cause.message}"
    if rest := sum(len(names) for _, names in found[MAX_CAUSES:]):
        yield f"{count_noun(rest, 'other VM', 'does', 'do')} not start for other reasons"


def _why_missing(snapshot: PoolSnapshot) -> str:
    (lowest,) = free_ordinals(snapshot.taken_ordinals, 1, snapshot.pool.first_ordinal)
    if len(name := name_of(snapshot.pool.name, lowest)) > MAX_NAME:
        return f"the next free name {name} has more than {MAX_NAME} characters: free a lower number"
    if snapshot.waited_for:
        names = join_names(sorted(snapshot.waited_for))
        return f"{names}: disks of an earlier VM of this name exist, and the pool waits for their deletion"
    return ""


def with_cause(snapshot: PoolSnapshot, message: str) -> str:
    """The message, why VMs do not start, and which are held."""
    why, held = why_not_started(snapshot), [vm.name for vm in snapshot.active if vm.held]
    if not why and (waiting := wait_for_disks(snapshot)):
        why = "{} waits: {}".format(*min(waiting.items()))
    hooks = f"{names_and_verb(held, 'waits', 'wait')} for lifecycle hooks" if held else ""
    return "; ".join(filter(None, (message, why, hooks)))
