"""The condition Evicting, with which a claim says what the drain of its VM's node does to the VM.

The claim has it only while the VM should leave its node."""

from collections.abc import Iterable
from datetime import datetime

from controllers.claim.expiry import expires_at
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import Claim, ClaimSnapshot, Failure
from controllers.claim.steps import ClaimEvent
from controllers.shared.conditions import condition, find_condition
from controllers.shared.evictions import treatment_of
from controllers.warmpool.evictions import BUDGET_FAILURE, delay_end
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.api.kinds.metav1 import Condition

EVICTING = "Evicting"


def evicting_since(claim: Claim) -> str:
    """Since when the claim's VM should leave its node. An empty string for a claim whose VM may stay."""
    found = find_condition(claim.status.conditions, EVICTING, "True")
    return (found.last_transition_time or "") if found is not None else ""


def evicting_condition(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> list[Condition]:
    """Nothing for a claim whose VM may stay on its node."""
    found = _why_evicting(s, vm, now)
    return [condition(EVICTING, True, found.reason, found.message)] if found is not None else []


def evicting_event(before: Iterable[Condition], after: Iterable[Condition]) -> ClaimEvent | None:
    """The event for a new reason of the condition while it is True."""
    old, new = (find_condition(each, EVICTING, "True") for each in (before, after))
    if new is None or (old is not None and old.reason == new.reason):
        return None
    return ClaimEvent(new.reason, new.message, "Normal" if new.reason == ClaimReason.EVACUATING else "Warning")


def seconds_until_allowed(s: ClaimSnapshot, now: datetime) -> float | None:
    """Seconds until the drain of the VM's node waits no longer. None if it does not wait."""
    since = evicting_since(s.claim)
    left = (delay_end(s.pool, since) - now).total_seconds() if since and s.pool is not None else 0.0
    return left if left > 0 else None


def delay(pool: WarmPool) -> tuple[int, str]:
    """For how long drains wait for the pool's claims, in seconds, and why they do not wait."""
    return pool.spec.claim_policy.eviction_delay_seconds, _why_no_delay(pool)


def _why_evicting(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> Failure | None:
    vmi, since = vm.vmi, evicting_since(s.claim)
    if vmi is None or not vmi.running:
        if not since or vm.run_strategy == "Halted":
            return None
        message = f"{vm.name} was stopped while its node was drained; KubeVirt starts it again on another node"
        return Failure(ClaimReason.EVICTED, message)
    if vmi.evacuated:
        message = f"an eviction moves {vm.name} away from {vmi.node}; its guest keeps running"
        return Failure(ClaimReason.EVACUATING, message)
    if vm.node is None or not vm.node.leaving or treatment_of(vmi, s.cluster) == "Move":
        return None
    why = f"node {vm.node.name} is cordoned or drained"
    if s.pool is None:
        return Failure(ClaimReason.EVICTION_ALLOWED, f"{why}, its warm pool is deleted: an eviction may stop {vm.name}")
    if no_delay := _why_no_delay(s.pool):
        return Failure(ClaimReason.EVICTION_ALLOWED, f"{why}, and its pool delays no eviction of {vm.name}: {no_delay}")
    end = delay_end(s.pool, since or format_micro_time(now))
    restart = f"stop {vm.name}, and KubeVirt then starts it on another node"
    if now >= end:
        message = f"{why}: since {end:%H:%M:%S} UTC an eviction may {restart}"
        return Failure(ClaimReason.EVICTION_ALLOWED, message)
    if (expiry := expires_at(s)) is not None and expiry <= end:
        return Failure(ClaimReason.NODE_DRAINING, f"{why}: a drain waits until the claim expires")
    message = f"{why}: a drain waits for this claim until {end:%H:%M:%S} UTC. From then on an eviction may {restart}"
    return Failure(ClaimReason.NODE_DRAINING, message)


def _why_no_delay(pool: WarmPool) -> str:
    """Why no PodDisruptionBudget of the pool delays evictions, or an empty string."""
    if pool.spec.claim_policy.eviction_budget == "Disabled":
        return "claimPolicy.evictionBudget of the pool is Disabled"
    failure = find_condition(pool.status.conditions, BUDGET_FAILURE, "True")
    return failure.message or failure.reason if failure is not None else ""
