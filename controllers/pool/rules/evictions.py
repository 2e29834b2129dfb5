"""The rule that keeps the PodDisruptionBudget of a pool: a drain stops no more VMs at once than the pool itself would.

The budget is for VMs that an eviction stops. KubeVirt moves the others. It is a number of Pods that must stay ready,
and always lower than the number of VMs that are meant to run: else no drain would end.

A Pod keeps the labels with which it was made, also when its VM leaves the pool, and a VM that migrates has two ready
Pods before its VMI says so. Each such Pod would make room for the eviction of a VM that should stay. So the budget
selects only the Pods of VMs of the pool that an eviction stops, and leaves out the other VMIs by their UIDs, from their
creation on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from controllers.pool.actions import Action, DeleteEvictionBudget, SetEvictionBudget
from controllers.pool.causes import why_not_started
from controllers.pool.outages import lost_vms
from controllers.pool.power import RUNNING
from controllers.pool.reasons import PoolReason
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.snapshot import PoolSnapshot, once
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
from controllers.shared.conditions import condition, names_and_verb
from controllers.shared.evictions import Treatment, VMIChoice, treatment, treatment_of
from controllers.shared.vmi import VMI, text
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import known_time, seconds_until_next
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition

PoolBudget = DesiredBudget[PoolReason]


@once
def desired_budget(snapshot: PoolSnapshot) -> PoolBudget:
    """The budget that the pool needs."""
    for why_none, failure in NO_BUDGET:
        if why := why_none(snapshot):
            return PoolBudget(reason=why, failure=failure)
    if "Unknown" in _treatments(snapshot):
        return unknown_strategy(snapshot.pool, snapshot.budgets, PoolReason.EVICTION_STRATEGY_UNKNOWN)
    stopped, moved = _running(snapshot)["Stop"], _running(snapshot)["Move"]
    # A user may migrate VMs that an eviction stops, and the second Pod must not make room for an eviction. KubeVirt
    # says that a VMI migrates when this Pod runs. With a readiness probe the Pod gets ready only at the end of the
    # migration, and a drain may wait as long.
    least = _least(snapshot) - _available_elsewhere(snapshot) + sum(vmi.migrating for vmi in stopped)
    left_out = VMIChoice("NotIn", tuple(sorted([*snapshot.foreign_vmis, *(vmi.uid for vmi in moved)])))
    must_stay = f"{_least(snapshot)} of {count_noun(meant_to_run(snapshot), 'VM')} must stay available"
    return PoolBudget(least, must_stay, vmis=left_out)


def _deleted(snapshot: PoolSnapshot) -> str:
    return DELETED if snapshot.pool.deleting else ""


def _endless(snapshot: PoolSnapshot) -> str:
    return endless(snapshot.pool, snapshot.budgets, _running(snapshot)["Stop"])


def _disabled(snapshot: PoolSnapshot) -> str:
    return "spec.evictionBudget is Disabled" if snapshot.pool.spec.eviction_budget == "Disabled" else ""


def _all_may_stop(snapshot: PoolSnapshot) -> str:
    meant = count_noun(meant_to_run(snapshot), "VM")
    return f"{meant} should run, and maxUnavailable allows the stop of all" if _least(snapshot) <= 0 else ""


def _none_stops(snapshot: PoolSnapshot) -> str:
    return "an eviction moves its VMs" if _treatments(snapshot) == {"Move"} else ""


def _unreadable(snapshot: PoolSnapshot) -> str:
    return UNREADABLE if snapshot.budgets is None else ""


def _conflict(snapshot: PoolSnapshot) -> str:
    return conflict(snapshot.pool, snapshot.budgets or (), _running(snapshot)["Stop"], "spec.evictionBudget")


def _enough_elsewhere(snapshot: PoolSnapshot) -> str:
    found = _available_elsewhere(snapshot)
    return f"an eviction moves {count_noun(found, 'VM')}, which is enough" if _least(snapshot) <= found else ""


NO_BUDGET: tuple[tuple[Callable[[PoolSnapshot], str], PoolReason | None], ...] = (
    (_deleted, None),
    (_endless, PoolReason.FOREIGN_EVICTION_BUDGET),
    (_disabled, None),
    (_all_may_stop, None),
    (_none_stops, None),
    (_unreadable, PoolReason.EVICTION_BUDGETS_UNREADABLE),
    (_conflict, PoolReason.FOREIGN_EVICTION_BUDGET),
    (_enough_elsewhere, None),
)
"""Why a pool has no budget, in this order, and the reason of the condition if it needs one all the same."""


def _treatments(snapshot: PoolSnapshot) -> set[Treatment]:
    """What an eviction does to the VMs that run, or to those that are to run."""
    of_template = treatment(text(snapshot.pool.spec.template, *_STRATEGY), True, snapshot.cluster)
    return {each for each, vmis in _running(snapshot).items() if vmis} or {of_template}


def _available_elsewhere(snapshot: PoolSnapshot) -> int:
    """The available VMs that an eviction moves, whose Pods the budget leaves out."""
    counted = {vm.uid for vm in snapshot.counted}
    return sum(vmi.ready and vmi.owner_uid in counted for vmi in _running(snapshot)["Move"])


def _least(snapshot: PoolSnapshot) -> int:
    """The VMs that must stay available."""
    return meant_to_run(snapshot) - snapshot.pool.max_unavailable


_STRATEGY = "spec", "template", "spec", "evictionStrategy"


def meant_to_run(snapshot: PoolSnapshot) -> int:
    """The VMs that should run, with those that the pool is about to create, and without those above `replicas`."""
    existing = sum(vm.should_run for vm in snapshot.counted)
    created = snapshot.missing if snapshot.revision.run_strategy in RUNNING else 0
    return min(snapshot.pool.spec.replicas, existing + created)


@once
def _running(snapshot: PoolSnapshot) -> Mapping[Treatment, Sequence[VMI]]:
    """The VMIs of the pool's VMs, by what an eviction does to them."""
    found: dict[Treatment, list[VMI]] = {"Stop": [], "Move": [], "Unknown": []}
    for vm in snapshot.vms:
        if vm.vmi is not None and not (vm.vmi.final or vm.vmi.deleting):
            found[treatment_of(vm.vmi, snapshot.cluster)].append(vm.vmi)
    return found


def keep_budget(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Brings the budget in step with the pool. A paused pool is drained too."""
    if snapshot.budget_refusal is None or not snapshot.budget_refusal.wait_seconds:
        yield from _needed(snapshot)


def _needed(snapshot: PoolSnapshot) -> Iterator[Action]:
    pool, labels = snapshot.pool, {meta.POOL: snapshot.pool.name}
    if snapshot.budgets is not None:
        yield from keep_in_step(
            pool, labels, snapshot.budgets, desired_budget(snapshot), SetEvictionBudget, DeleteEvictionBudget
        )


def _why_unavailable(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why VMs do not become available by themselves. The Pod of a paused VM is not ready. Empty if nothing is known."""
    paused = [vm.name for vm in snapshot.active if vm.should_run and vm.vmi is not None and vm.vmi.paused]
    unready = [name for name, late_at in _late_when_unready(snapshot) if late_at <= now]
    seconds = snapshot.pool.spec.progress_deadline_seconds
    said = (
        why_not_started(snapshot),
        f"{names_and_verb(paused, 'is', 'are')} paused" if paused else "",
        f"{names_and_verb(unready, 'runs and is', 'run and are')} not ready for {seconds} s: see the readiness probe"
        if unready
        else "",
    )
    return "; ".join(filter(None, said))


def _late_when_unready(snapshot: PoolSnapshot) -> Iterator[tuple[str, datetime]]:
    """The VMs that run and are not ready, and the time from which on they do not count as ones that start.
    Those of lost nodes are named with their node."""
    lost = lost_vms(snapshot)
    for vm in snapshot.active:
        if vm.should_run and vm.uid not in lost and vm.vmi is not None and vm.vmi.running and not vm.vmi.paused:
            since = known_time(vm.vmi.unready_since)
            if since is not None:
                yield vm.name, since + timedelta(seconds=snapshot.pool.spec.progress_deadline_seconds)


def _seconds_until_blocked(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until another VM does not count as one that starts."""
    return seconds_until_next((late_at for _, late_at in _late_when_unready(snapshot)), now)


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    kind, wanted, refusal = "EvictionBudgetFailure", desired_budget(snapshot), snapshot.budget_refusal
    available = sum(vm.should_run and vm.available for vm in snapshot.active)
    if refusal is not None and any(_needed(snapshot)):
        message = describe_refusal(snapshot.pool, snapshot.budgets or (), wanted, refusal)
        yield condition(kind, True, PoolReason.EVICTION_BUDGET_REFUSED, message)
    elif wanted.failure is not None:
        yield condition(kind, True, wanted.failure, wanted.reason)
    elif wanted.min_available and available <= _least(snapshot) and (why := _why_unavailable(snapshot, now)):
        message = f"a drain must wait, because {wanted.reason}, and only {available} are available: {why}"
        yield condition(kind, True, PoolReason.EVICTIONS_BLOCKED, message)
    else:
        yield condition(kind, False, PoolReason.NO_EVICTION_BUDGET_FAILURE)


EVICTIONS = Rule(always=(keep_budget,), again=(_seconds_until_blocked,), conditions=_conditions)
