"""The PodDisruptionBudget that a pool needs.

The budget is for VMs that an eviction stops. KubeVirt moves the others. It is a number of Pods that must stay ready,
and always lower than the number of VMs that are meant to run: else no drain would end.

A Pod keeps the labels with which it was made, also when its VM leaves the pool, and a VM that migrates has two ready
Pods before its VMI says so. Each such Pod would make room for the eviction of a VM that should stay. So the budget
selects only the Pods of VMs of the pool that an eviction stops, and leaves out the other VMIs by their UIDs, from their
creation on.
"""

from collections.abc import Callable, Mapping, Sequence

from controllers.pool.power import RUNNING
from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.sets.eviction_budgets import DELETED, UNREADABLE, DesiredBudget, conflict, endless, unknown_strategy
from controllers.shared.evictions import Treatment, VMIChoice, treatment, treatment_of
from controllers.shared.vmi import VMI, text
from poolhouse.api.apimachinery.counting import count_noun

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
    pods = least(snapshot) - _available_elsewhere(snapshot) + sum(vmi.migrating for vmi in stopped)
    left_out = VMIChoice("NotIn", tuple(sorted([*snapshot.foreign_vmis, *(vmi.uid for vmi in moved)])))
    must_stay = f"{least(snapshot)} of {count_noun(meant_to_run(snapshot), 'VM')} must stay available"
    return PoolBudget(pods, must_stay, vmis=left_out)


def _deleted(snapshot: PoolSnapshot) -> str:
    return DELETED if snapshot.pool.deleting else ""


def _endless(snapshot: PoolSnapshot) -> str:
    return endless(snapshot.pool, snapshot.budgets, _running(snapshot)["Stop"])


def _disabled(snapshot: PoolSnapshot) -> str:
    return "spec.evictionBudget is Disabled" if snapshot.pool.spec.eviction_budget == "Disabled" else ""


def _all_may_stop(snapshot: PoolSnapshot) -> str:
    meant = count_noun(meant_to_run(snapshot), "VM")
    return f"{meant} should run, and maxUnavailable allows the stop of all" if least(snapshot) <= 0 else ""


def _none_stops(snapshot: PoolSnapshot) -> str:
    return "an eviction moves its VMs" if _treatments(snapshot) == {"Move"} else ""


def _unreadable(snapshot: PoolSnapshot) -> str:
    return UNREADABLE if snapshot.budgets is None else ""


def _conflict(snapshot: PoolSnapshot) -> str:
    return conflict(snapshot.pool, snapshot.budgets or (), _running(snapshot)["Stop"], "spec.evictionBudget")


def _enough_elsewhere(snapshot: PoolSnapshot) -> str:
    found = _available_elsewhere(snapshot)
    return f"an eviction moves {count_noun(found, 'VM')}, which is enough" if least(snapshot) <= found else ""


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
    """What an eviction does to the VMs that run, or to those that are to run. The start of a VM changes neither the
    budget nor the condition while it is undecided whether the VM can be migrated."""
    of_template = treatment(text(snapshot.pool.spec.template, *_STRATEGY), True, snapshot.cluster)
    return {each for each, vmis in _running(snapshot).items() if vmis and each != "Undecided"} or {of_template}


def _available_elsewhere(snapshot: PoolSnapshot) -> int:
    """The available VMs that an eviction moves, whose Pods the budget leaves out."""
    counted = {vm.uid for vm in snapshot.counted}
    return sum(vmi.ready and vmi.owner_uid in counted for vmi in _running(snapshot)["Move"])


def least(snapshot: PoolSnapshot) -> int:
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
    found: dict[Treatment, list[VMI]] = {"Stop": [], "Move": [], "Undecided": [], "Unknown": []}
    for vm in snapshot.vms:
        if vm.vmi is not None and not (vm.vmi.final or vm.vmi.deleting):
            found[treatment_of(vm.vmi, snapshot.cluster)].append(vm.vmi)
    return found
