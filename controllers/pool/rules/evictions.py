"""The rule that keeps the PodDisruptionBudget of a pool: a drain stops no more VMs at once than the pool itself would.

The budget is for VMs that an eviction stops. KubeVirt moves the others. It is a number of Pods that must stay ready,
and always lower than the number of VMs that are meant to run: else no drain would end.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from controllers.pool.actions import Action, DeleteEvictionBudget, SetEvictionBudget
from controllers.pool.causes import why_not_started
from controllers.pool.power import RUNNING
from controllers.pool.reasons import PoolReason
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.sets.eviction_budgets import (
    DELETED,
    UNREADABLE,
    BudgetWish,
    conflict,
    describe_refusal,
    endless,
    keep_in_step,
    unknown_strategy,
)
from controllers.shared.conditions import condition
from controllers.shared.evictions import Treatment, has_own_budgets, treatment, treatment_of
from controllers.shared.vmi import VMI, text
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition

Wish = BudgetWish[PoolReason]


@once
def wish(snapshot: PoolSnapshot) -> Wish:
    """The budget that the pool needs."""
    if snapshot.pool.deleting:
        return Wish(reason=DELETED)
    running = [(vmi, treatment_of(vmi, snapshot.cluster)) for vmi in _running(snapshot)]
    if why := endless(snapshot.pool, snapshot.budgets, [vmi for vmi, found in running if found == "Stop"]):
        return Wish(reason=why, failure=PoolReason.FOREIGN_EVICTION_BUDGET)
    return _wish(snapshot, running)


def _wish(snapshot: PoolSnapshot, running: Sequence[tuple[VMI, Treatment]]) -> Wish:
    """The same, if the pool stays, and a drain can end."""
    if snapshot.pool.spec.eviction_budget == "Disabled":
        return Wish(reason="spec.evictionBudget is Disabled")
    meant = meant_to_run(snapshot)
    if meant <= snapshot.pool.max_unavailable:
        return Wish(reason=f"{count_noun(meant, 'VM')} should run, and maxUnavailable allows the stop of all")
    found = {found for _, found in running} or {
        treatment(text(snapshot.pool.spec.template, *_STRATEGY), True, snapshot.cluster)
    }
    if "Unknown" in found:
        return unknown_strategy(snapshot.pool, snapshot.budgets, PoolReason.EVICTION_STRATEGY_UNKNOWN)
    if "Stop" not in found:
        return Wish(reason="an eviction moves its VMs")
    if "Move" in found and has_own_budgets(snapshot.cluster):
        why = "KubeVirt makes a PodDisruptionBudget for those VMs that migrate, and two for one Pod would stop a drain"
        return Wish(reason=why, failure=PoolReason.KUBEVIRT_EVICTION_BUDGETS)
    if snapshot.budgets is None:
        return Wish(reason=UNREADABLE, failure=PoolReason.EVICTION_BUDGETS_UNREADABLE)
    if why := conflict(snapshot.pool, snapshot.budgets, [vmi for vmi, _ in running], "spec.evictionBudget"):
        return Wish(reason=why, failure=PoolReason.FOREIGN_EVICTION_BUDGET)
    # A VM that migrates has two ready Pods for a moment, and the second one must not make room for an eviction.
    # So must the Pod of a VM that has left the pool, and has kept its label.
    other_pods = sum(vmi.migrating for vmi, _ in running) + snapshot.foreign_pods
    least = meant - snapshot.pool.max_unavailable
    return Wish(least + other_pods, f"{least} of {count_noun(meant, 'VM')} must stay available")


_STRATEGY = "spec", "template", "spec", "evictionStrategy"


def meant_to_run(snapshot: PoolSnapshot) -> int:
    """The VMs that should run, with those that the pool is about to create, and without those above `replicas`."""
    existing = sum(vm.should_run for vm in snapshot.counted)
    created = snapshot.missing if snapshot.revision.run_strategy in RUNNING else 0
    return min(snapshot.pool.spec.replicas, existing + created)


def _running(snapshot: PoolSnapshot) -> list[VMI]:
    vmis = (vm.vmi for vm in snapshot.vms)
    return [vmi for vmi in vmis if vmi is not None and not (vmi.final or vmi.deleting)]


def keep_budget(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Brings the budget in step with the pool. A paused pool is drained too."""
    if snapshot.budget_refusal is None or not snapshot.budget_refusal.wait_seconds:
        yield from _needed(snapshot)


def _needed(snapshot: PoolSnapshot) -> Iterator[Action]:
    pool, labels = snapshot.pool, {meta.POOL: snapshot.pool.name}
    if snapshot.budgets is not None:
        yield from keep_in_step(pool, labels, snapshot.budgets, wish(snapshot), SetEvictionBudget, DeleteEvictionBudget)


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    kind, wanted, refusal = "EvictionBudgetFailure", wish(snapshot), snapshot.budget_refusal
    least, available = wanted.min_available or 0, sum(vm.should_run and vm.available for vm in snapshot.active)
    if refusal is not None and any(_needed(snapshot)):
        message = describe_refusal(snapshot.pool, snapshot.budgets or (), wanted, refusal)
        yield condition(kind, True, PoolReason.EVICTION_BUDGET_REFUSED, message)
    elif wanted.failure is not None:
        yield condition(kind, True, wanted.failure, wanted.reason)
    elif available <= least and least and (why := why_not_started(snapshot)):
        message = f"a drain must wait, because {wanted.reason}, and only {available} are available: {why}"
        yield condition(kind, True, PoolReason.EVICTIONS_BLOCKED, message)
    else:
        yield condition(kind, False, PoolReason.NO_EVICTION_BUDGET_FAILURE)


EVICTIONS = Rule("Evictions", always=(keep_budget,), conditions=_conditions)
