"""Scales a warm pool out and in, and deletes VMs that no claim can get to make room for new VMs."""

import math
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256

from controllers.warmpool.actions import Action, CreateVM, DeleteVM
from controllers.warmpool.heal import failed_for_long, mass_failure
from controllers.warmpool.naming import draw_placement, unused_names
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.rollout import disruption_budget, replaced_vms
from controllers.warmpool.snapshot import WarmPoolSnapshot, on_leaving_node, waits_for_scheduling
from controllers.warmpool.standby import standby_of_new_vm
from controllers.warmpool.warm_vm import WarmVM, why_unavailable
from poolhouse.api.apimachinery.counting import count_noun, count_of, count_verb
from poolhouse.api.kinds.warm_states import WarmState


def scale_out(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    pool = snapshot.pool
    count = min(missing(snapshot, now), _allowed(snapshot, now))
    taken = {vm.name for vm in snapshot.vms}
    reason = f"the pool has {count_of(len(snapshot.depth), snapshot.target, 'VM')}"
    for created, name in enumerate(unused_names(pool.name, snapshot.seed, count, taken)):
        placement = draw_placement(pool.uid, name, pool.spec.places) or next(iter(pool.placements))
        yield CreateVM(name, placement, standby_of_new_vm(snapshot, created), reason)


def missing(snapshot: WarmPoolSnapshot, now: datetime) -> int:
    """The number of VMs to create for `target` and the surge of the update strategy."""
    replaced = len(replaced_vms(snapshot, now))
    current, surge = len(snapshot.depth) - replaced, disruption_budget(snapshot).surge if replaced else 0
    return max(0, min(snapshot.target - current, snapshot.target + surge - len(snapshot.depth)))


def _allowed(snapshot: WarmPoolSnapshot, now: datetime) -> int:
    """The number of VMs that may be created now."""
    if not snapshot.failures.due(now, snapshot.pool.spec.refill):
        return 0
    in_flight = len(snapshot.in_state(WarmState.PROVISIONING))
    limits = [snapshot.pool.spec.refill.max_concurrent - in_flight, snapshot.capacity_left]
    if not math.isinf(snapshot.tokens):
        limits.append(int(snapshot.tokens))
    if snapshot.breaker_open:
        limits.append(1)  # one VM, to test whether VMs start again
    return max(0, min(limits))


def seconds_until_allowed(snapshot: WarmPoolSnapshot, now: datetime) -> float | None:
    if not missing(snapshot, now):
        return None
    refill = snapshot.pool.spec.refill
    if (wait := snapshot.failures.seconds_until_due(now, refill)) is not None:
        return wait
    rate = refill.rate_per_second
    return max(0.02, (1 - snapshot.tokens) / rate) if rate and snapshot.tokens < 1 else None


def scale_in(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Deletes first unavailable VMs, then VMs that are outdated or expired, then the youngest VMs.

    A VM that a claim has just taken no longer waits: if it counted, a VM that boots would be deleted in its place."""
    replaced = {vm.uid for vm in replaced_vms(snapshot, now)}
    waiting, surge = len(snapshot.depth) - snapshot.reserved, disruption_budget(snapshot).surge if replaced else 0
    excess = waiting - snapshot.target - surge
    if excess <= 0:
        return

    def rank(vm: WarmVM) -> tuple[bool, bool, bool, tuple[int, ...], str]:
        youngest_first, random = tuple(-ord(c) for c in vm.created_at), sha256(vm.uid.encode()).hexdigest()
        return vm.state is WarmState.READY, not why_unavailable(vm), vm.uid not in replaced, youngest_first, random

    candidates = [vm for vm in snapshot.depth if vm.state is not WarmState.UNKNOWN]
    for vm in sorted(candidates, key=rank)[:excess]:
        yield DeleteVM(
            vm,
            "Excess",
            f"the pool has {count_noun(len(snapshot.depth), 'VM')}, {count_verb(snapshot.target, 'is', 'are')} desired",
        )


def make_room(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Deletes one VM that no claim can get, if `maxTotal`, a quota or the cluster admits no new VM.

    Without this step, the pool would never recover: unhealthy VMs are kept after a mass failure, and VMs on a drained
    node are kept until others are available. The next deletion waits until a new VM uses the room and was checked. The
    pauses grow, so that the pool loses one VM in an outage of the checks. With an Unknown VM, none is deleted."""
    unsettled = snapshot.in_state(WarmState.UNKNOWN) or snapshot.deleting or _provisioning(snapshot)
    if unsettled or not snapshot.failures.due(now, snapshot.pool.spec.refill):
        return
    # The controller retries after the first refusal, because another subnet may have capacity.
    refused = snapshot.failures.reason == Reason.INSUFFICIENT_CAPACITY and snapshot.failures.consecutive > 1
    capped = missing(snapshot, now) > 0 and (not snapshot.capacity_left or refused)
    if capped and (leaving := [vm for vm in snapshot.in_state(WarmState.READY) if on_leaving_node(vm)]):
        yield _delete_oldest(leaving, "the VM is on a node that is cordoned or drained")
    elif (capped or _cluster_is_full(snapshot)) and mass_failure(snapshot):
        failed = [vm for vm in failed_for_long(snapshot) if snapshot.health_of(vm).in_standby.verdict == "Failed"]
        if failed:
            yield _delete_oldest(failed, "the VM did not recover")


def _cluster_is_full(snapshot: WarmPoolSnapshot) -> bool:
    """Whether a VM waits for scheduling because of missing capacity. More capacity does not open a scheduling gate."""
    return any(vm.vmi is None or vm.vmi.start_failure != "SchedulingGated" for vm in snapshot.unscheduled)


def _provisioning(snapshot: WarmPoolSnapshot) -> bool:
    return any(not waits_for_scheduling(vm) for vm in snapshot.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY))


def _delete_oldest(vms: list[WarmVM], why: str) -> DeleteVM:
    oldest = min(vms, key=lambda vm: (vm.state_since, vm.uid))
    return DeleteVM(oldest, "NoRoom", f"{why}, and only its deletion makes room for another VM")
