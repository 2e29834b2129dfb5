"""The rule that ends the holds of VMs, and brings the label poolhouse.dev/in-service up to date."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from controllers.pool.actions import Action, EndHold, SetInService
from controllers.pool.gates.disruptions import Disruption
from controllers.pool.gates.hooks import held, pending_hooks, seconds_until_timeout
from controllers.pool.reasons import PoolReason
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.rules.through_gates import decisions
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import condition, join_names
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition


def end_holds(rules: Iterable[Rule], snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Ends the holds of VMs that have been restarted, or that no rule wants to delete or restart any more."""
    holds = [(vm, vm.hold) for vm in snapshot.active if vm.hold is not None]
    if not holds:
        return
    wanted = {(each.transition, each.vm.name) for rule in rules for each in _holding(snapshot, now, rule)}
    for vm, hold in holds:
        if not vm.held:
            reason = "it was restarted"
        elif (hold.transition, vm.name) in wanted or _stops_soon(snapshot, vm, hold.transition):
            continue
        else:
            reason = f"it is not {'deleted' if hold.transition == 'Terminating' else 'restarted'} any more"
        yield EndHold(vm.name, vm.uid, vm.resource_version, tuple(name for name, _ in hold.hooks), reason)


def _holding(snapshot: PoolSnapshot, now: datetime, rule: Rule) -> Iterator[Disruption]:
    """The disruptions of the rule for which VMs stay held."""
    for each in decisions(snapshot, now, rule):
        if isinstance(each.wanted, Disruption) and (each.waiting is None or rule.keeps_holds):
            yield each.wanted


def _stops_soon(snapshot: PoolSnapshot, vm: VM, transition: str) -> bool:
    """Whether KubeVirt restarts the VM without another action of the pool."""
    restarts = vm.uid in snapshot.restores_by_vm or (vm.vmi is not None and vm.vmi.deleting)
    return restarts and transition == "Restarting"


def set_in_service(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Brings the label poolhouse.dev/in-service of VMIs up to date: held VMs do not have it."""
    if not snapshot.pool.spec.lifecycle_hooks:
        return
    for vm in snapshot.active:
        if vm.vmi is None or vm.vmi.deleting or vm.vmi.final:
            continue
        if (meta.IN_SERVICE in vm.vmi.labels) == vm.held:
            reason = "it is held for lifecycle hooks" if vm.held else "it is not held"
            yield SetInService(vm.name, vm.vmi.uid, not vm.held, reason)


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    found = held(snapshot)
    if not found:
        yield condition("VMsHeld", False, PoolReason.NO_VMS_HELD)
        return
    names = join_names(_hooks(vm, [hook.name for hook in pending_hooks(snapshot, vm, now)]) for vm in found)
    message = f"{count_noun(len(found), 'VM', 'waits', 'wait')} for lifecycle hooks: {names}"
    yield condition("VMsHeld", True, PoolReason.WAITING_FOR_HOOKS, message)


def _hooks(vm: VM, names: list[str]) -> str:
    return f"{vm.name} ({', '.join(names) or 'all ended'})"


def holds(rules: Callable[[], Iterable[Rule]]) -> Rule:
    """The rule that ends a hold when none of the other rules wants to stop the VM any more."""

    def end(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
        return end_holds(rules(), snapshot, now)

    return Rule(steps=(end, set_in_service), again=(seconds_until_timeout,), conditions=_conditions)
