"""Scales a warm pool out and in, and deletes VMs that nobody can claim where they take the place of others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256

from controllers.warmpool.actions import Action, CreateVM, DeleteVM
from controllers.warmpool.heal import failed_for_long, mass_failure
from controllers.warmpool.naming import draw_placement, unused_names
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.rollout import disruption_budget, why_replaced
from controllers.warmpool.snapshot import WarmPoolSnapshot, on_leaving_node, waits_for_scheduling
from controllers.warmpool.standby import standby_of_new_vm
from controllers.warmpool.warm_vm import WarmVM, why_unavailable
from kinds.warm_states import WarmState


def scale_out(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    pool = state.pool
    count = min(missing(state, now), _allowed(state, now))
    taken = {m.name for m in state.vms}
    reason = f"the pool has {len(state.depth)} of {state.target} VMs"
    for created, name in enumerate(unused_names(pool.name, state.seed, count, taken)):
        placement = draw_placement(pool.uid, name, pool.spec.places) or next(iter(pool.placements))
        yield CreateVM(name, placement, standby_of_new_vm(state, created), reason)


def missing(state: WarmPoolSnapshot, now: datetime) -> int:
    """How many VMs the desired number and the update strategy lack."""
    replaced = sum(bool(why_replaced(state, m, now)) for m in state.depth)
    current, surge = len(state.depth) - replaced, disruption_budget(state).surge if replaced else 0
    return max(0, min(state.target - current, state.target + surge - len(state.depth)))


def _allowed(state: WarmPoolSnapshot, now: datetime) -> int:
    """How many VMs may be created now."""
    if not state.failures.due(now):
        return 0
    in_flight = len(state.in_state(WarmState.PROVISIONING))
    limits = [state.pool.spec.refill.max_concurrent - in_flight, state.capacity_left]
    if not math.isinf(state.tokens):
        limits.append(int(state.tokens))
    if state.breaker_open:
        limits.append(1)  # to test whether VMs start again
    return max(0, min(limits))


def seconds_until_allowed(state: WarmPoolSnapshot, now: datetime) -> float | None:
    if not missing(state, now):
        return None
    if (wait := state.failures.seconds_until_due(now)) is not None:
        return wait
    rate = state.pool.spec.refill.rate_per_second
    return max(0.02, (1 - state.tokens) / rate) if rate and state.tokens < 1 else None


def scale_in(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Deletes VMs that no claim can get first, then VMs that would be replaced anyway, then the youngest."""
    replaced = {m.uid for m in state.depth if why_replaced(state, m, now)}
    excess = len(state.depth) - state.target - (disruption_budget(state).surge if replaced else 0)
    if excess <= 0:
        return

    def rank(m: WarmVM) -> tuple[bool, bool, bool, tuple[int, ...], str]:
        youngest_first, random = tuple(-ord(c) for c in m.created_at), sha256(m.uid.encode()).hexdigest()
        return m.state is WarmState.READY, not why_unavailable(m), m.uid not in replaced, youngest_first, random

    candidates = [m for m in state.depth if m.state is not WarmState.UNKNOWN]
    for m in sorted(candidates, key=rank)[:excess]:
        yield DeleteVM(m, "Excess", f"the pool has {len(state.depth)} VMs, {state.target} are desired")


def make_room(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Deletes one VM that no claim can get, where `maxTotal`, a quota or the cluster admits no other VM.

    Unhealthy VMs are kept for inspection after a mass failure, and VMs on a node that is drained until others are
    available. Without this step the pool would never recover. The next VM is deleted only after the place of the last
    was taken and the new VM has proved healthy or not, each after a longer pause: in an outage of the checks the pool
    loses one VM, not one after the other. A VM that cannot be checked may mean such an outage: then none is deleted."""
    if not state.failures.due(now) or state.in_state(WarmState.UNKNOWN) or state.deleting or _provisioning(state):
        return
    # The first refusal is retried: another subnet may have capacity.
    refused = state.failures.reason == Reason.INSUFFICIENT_CAPACITY and state.failures.consecutive > 1
    capped = missing(state, now) > 0 and (not state.capacity_left or refused)
    if capped and (leaving := [m for m in state.in_state(WarmState.READY) if on_leaving_node(m)]):
        yield _delete_oldest(leaving, "the VM is on a node that is cordoned or drained")
    elif (capped or _cluster_is_full(state)) and mass_failure(state):
        failed = [m for m in failed_for_long(state) if state.health_of(m).in_standby.verdict == "Failed"]
        if failed:
            yield _delete_oldest(failed, "the VM did not recover")


def _cluster_is_full(state: WarmPoolSnapshot) -> bool:
    """A scheduling gate stays closed however much room there is."""
    return any(m.vmi is None or m.vmi.start_failure != "SchedulingGated" for m in state.unscheduled)


def _provisioning(state: WarmPoolSnapshot) -> bool:
    return any(not waits_for_scheduling(m) for m in state.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY))


def _delete_oldest(vms: list[WarmVM], why: str) -> DeleteVM:
    oldest = min(vms, key=lambda m: (m.state_since, m.uid))
    return DeleteVM(oldest, "NoRoom", f"{why}, and only its deletion makes room for another VM")
