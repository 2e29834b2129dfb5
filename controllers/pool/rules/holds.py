"""The rule that ends the holds of VMs, and brings the label poolhouse.dev/in-service up to date."""

from collections.abc import Iterator
from datetime import datetime

from apimachinery.counting import count_noun
from controllers.pool.actions import Action, EndHold, SetInService
from controllers.pool.gates.decide import chosen
from controllers.pool.gates.hooks import held, pending_hooks, seconds_until_timeout
from controllers.pool.reasons import PoolReason
from controllers.pool.rules.autohealing import failing
from controllers.pool.rules.lifetime import LIFETIMES
from controllers.pool.rules.rollout import UPDATES
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.rules.scaling import SCALE_IN
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import condition, join_names
from controllers.shared.vm import VM
from kinds import meta
from kinds.metav1 import Condition


def end_holds(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Ends the holds of VMs that have been restarted, or that the pool no longer wants to delete or restart."""
    holds = [(vm, vm.hold) for vm in snapshot.active if vm.hold is not None]
    if not holds:
        return
    leaving = {vm.name for vm in chosen(snapshot, now, SCALE_IN)} | {vm.name for vm, _ in failing(snapshot, now)}
    stopping = {vm.name for rule in (UPDATES, LIFETIMES) for vm in chosen(snapshot, now, rule)}
    for vm, hold in holds:
        if not vm.held:
            reason = "it was restarted"
        elif hold.transition == "Terminating" and vm.name not in leaving:
            reason = "it is not deleted any more"
        elif hold.transition != "Terminating" and vm.name not in stopping and not _stops_soon(snapshot, vm):
            reason = "it is not restarted any more"
        else:
            continue
        yield EndHold(vm.name, vm.uid, vm.resource_version, tuple(name for name, _ in hold.hooks), reason)


def _stops_soon(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether KubeVirt stops the VM without another action of the pool."""
    return vm.uid in snapshot.restores_by_vm or (vm.vmi is not None and vm.vmi.deleting)


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


HOLDS = Rule("Holds", steps=(end_holds, set_in_service), again=(seconds_until_timeout,), conditions=_conditions)
