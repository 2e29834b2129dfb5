"""The PodDisruptionBudget of a warm pool: a drain evicts claimed VMs last, and waits for their claims for some time.

Waiting VMs are in no budget, because the pool replaces them. The budget selects the launcher Pods of claimed VMs by the
UIDs of their VMIs: a Pod keeps the labels with which it was made, when its VM waited. An eviction of these VMs stops
their guests; KubeVirt moves the others.

A claim says since when the node of its VM is drained. The budget leaves out its VM after `evictionDelaySeconds`, so
that a claim without an end delays a drain no longer.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from controllers.sets.eviction_budgets import (
    DELETED,
    UNREADABLE,
    DesiredBudget,
    conflict,
    describe_refusal,
    endless,
    keep_in_step,
    unknown_strategy,
)
from controllers.shared.conditions import condition
from controllers.shared.evictions import EvictionBudget, VMIChoice, treatment_of
from controllers.shared.vmi import VMI, ObjectView
from controllers.warmpool.actions import Action, DeleteEvictionBudget, SetEvictionBudget
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.warm_pool import WarmPool
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import parse_time, seconds_until_next
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition

BUDGET_FAILURE = "EvictionBudgetFailure"

WarmPoolBudget = DesiredBudget[Reason]


def delay_end(pool: WarmPool, since: str) -> datetime:
    """The time until which the drain of a node waits for a claim, if the claim's VM should leave it `since` then."""
    return parse_time(since) + timedelta(seconds=pool.spec.claim_policy.eviction_delay_seconds)


def desired_budget(snapshot: WarmPoolSnapshot, now: datetime) -> WarmPoolBudget | None:
    """The budget that the pool needs. None for EC2 instances, which have no Pods."""
    pool, facts = snapshot.pool, snapshot.evictions
    if pool.spec.ec2 is not None:
        return None
    if pool.deleting:
        return WarmPoolBudget(reason=DELETED)
    named = _named(snapshot)
    if why := endless(named, facts.budgets, _stopped_by_evictions(snapshot)):
        return WarmPoolBudget(reason=why, failure=Reason.FOREIGN_EVICTION_BUDGET)
    if pool.spec.claim_policy.eviction_budget == "Disabled":
        return WarmPoolBudget(reason="spec.claimPolicy.evictionBudget is Disabled")
    treatments = [(vmi, treatment_of(vmi, facts.cluster)) for vmi in _delaying(snapshot, now)]
    if any(found == "Unknown" for _, found in treatments):
        return unknown_strategy(named, facts.budgets, Reason.EVICTION_STRATEGY_UNKNOWN)
    stopped = [vmi for vmi, found in treatments if found == "Stop"]
    if not stopped:
        return WarmPoolBudget(reason="it has no claimed VM for which a drain waits")
    if facts.budgets is None:
        return WarmPoolBudget(reason=UNREADABLE, failure=Reason.EVICTION_BUDGETS_UNREADABLE)
    if why := conflict(named, facts.budgets, stopped, "spec.claimPolicy.evictionBudget"):
        return WarmPoolBudget(reason=why, failure=Reason.FOREIGN_EVICTION_BUDGET)
    # A VM that a user migrates has two ready Pods for a moment.
    least = len(stopped) + sum(vmi.migrating for vmi in stopped)
    chosen = VMIChoice("In", tuple(sorted(vmi.uid for vmi in stopped)))
    return WarmPoolBudget(least, f"a drain waits for {count_noun(len(stopped), 'claimed VM')}", vmis=chosen)


def _stopped_by_evictions(snapshot: WarmPoolSnapshot) -> Iterator[VMI]:
    """The running VMIs whose guests an eviction stops."""
    for vm in (*snapshot.members, *snapshot.claimed):
        if vm.vmi is not None and vm.vmi.running and treatment_of(vm.vmi, snapshot.evictions.cluster) == "Stop":
            yield vm.vmi


def _named(snapshot: WarmPoolSnapshot) -> ObjectView:
    """The owner and the name of the budget. The name has a dot, which no name of a pool has: a VirtualMachinePool has a
    budget of its own name. A budget of the earlier name, NAME-claims, keeps it until it is made again."""
    pool, earlier = snapshot.pool, f"{snapshot.pool.name}-claims"
    keeps = any(each.name == earlier and _is_own(pool, each) for each in snapshot.evictions.budgets or ())
    return ObjectView(pool.namespace, earlier if keeps else f"{pool.name}.claims", pool.uid)


def _is_own(pool: WarmPool, budget: EvictionBudget) -> bool:
    if budget.abandoned:
        return bool(at(budget.selector, "matchLabels", meta.WARM_POOL) == pool.name)
    return budget.owner_uid == pool.uid


def _delaying(snapshot: WarmPoolSnapshot, now: datetime) -> Iterator[VMI]:
    """The running VMIs of claimed VMs that an eviction must not stop yet."""
    for vm in snapshot.claimed:
        since = snapshot.evictions.begun.get(vm.uid)
        delays = since is None or now < delay_end(snapshot.pool, since)
        if vm.vmi is not None and not (vm.vmi.final or vm.vmi.deleting) and delays:
            yield vm.vmi


def keep_budget(snapshot: WarmPoolSnapshot, wanted: WarmPoolBudget | None) -> Iterator[Action]:
    """Brings the budget in step with the claimed VMs, also of a paused pool."""
    refusal = snapshot.evictions.refusal
    if wanted is not None and (refusal is None or not refusal.wait_seconds):
        yield from _needed(snapshot, wanted)


def _needed(snapshot: WarmPoolSnapshot, wanted: WarmPoolBudget) -> Iterator[Action]:
    pool, labels, budgets = _named(snapshot), {meta.WARM_POOL: snapshot.pool.name}, snapshot.evictions.budgets
    if budgets is not None:
        yield from keep_in_step(pool, labels, budgets, wanted, SetEvictionBudget, DeleteEvictionBudget)


def seconds_until_allowed(snapshot: WarmPoolSnapshot, now: datetime) -> float | None:
    """Seconds until the first delay of a drain ends. None without such a delay."""
    ends = (delay_end(snapshot.pool, since) for since in snapshot.evictions.begun.values())
    return seconds_until_next(ends, now)


def budget_condition(snapshot: WarmPoolSnapshot, wanted: WarmPoolBudget | None) -> Iterator[Condition]:
    facts = snapshot.evictions
    if wanted is not None and facts.refusal is not None and any(_needed(snapshot, wanted)):
        message = describe_refusal(_named(snapshot), facts.budgets or (), wanted, facts.refusal)
        yield condition(BUDGET_FAILURE, True, Reason.EVICTION_BUDGET_REFUSED, message)
    elif wanted is not None and wanted.failure is not None:
        yield condition(BUDGET_FAILURE, True, wanted.failure, wanted.reason)
    else:
        yield condition(BUDGET_FAILURE, False, Reason.NO_EVICTION_BUDGET_FAILURE)
