"""Replaces VMs that fail, with their disks, and stops if the cause is likely elsewhere.

The pool's status has the attempts, the pauses and the circuit breaker. The controller writes the status before it
deletes a VM. A restart of the controller can therefore only delay healing.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from controllers.pool.actions import Action, Heal
from controllers.pool.gates.disruptions import Disruption
from controllers.pool.healing_status import failing, healing_status, seconds_until_healing
from controllers.pool.reasons import PoolReason
from controllers.pool.replacement import retain
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.windows import seconds_until_window_if
from controllers.shared.conditions import condition, join_names
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.kinds.metav1 import Condition


def heal(snapshot: PoolSnapshot, now: datetime) -> Iterator[Disruption]:
    """Replaces failing VMs, the worst first."""
    for vm, reason in failing(snapshot, now):
        yield Disruption(vm, "Healing", partial(_replacement, vm, reason))


def _replacement(vm: VM, reason: str) -> Action:
    if vm.replaced_disks:
        # Its replaced disks would be deleted with it.
        return retain(vm, "the VM is about to be replaced")
    return Heal(vm.name, vm.uid, reason, failed_starts=vm.start_failures > 0)


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    found = healing_status(snapshot, plan.healed, now)
    if found is None:
        return
    if found.breaker is not None and found.breaker.open:
        yield condition("Healing", False, PoolReason.TOO_MANY_FAILING, found.breaker.message)
    elif found.vms:
        names = join_names(f"{each.name} ({each.attempts})" for each in found.vms)
        message = f"{count_noun(len(found.vms), 'VM', 'was', 'were')} replaced, with the number of attempts: {names}"
        yield condition("Healing", True, PoolReason.VMS_REPLACED, message)
    else:
        yield condition("Healing", False, PoolReason.NO_FAILING_VMS)


HEALING = Rule(
    heal,
    context="it is not replaced, though it fails: ",
    # The owners of its hooks know that it fails, and must not be asked twice.
    keeps_holds=True,
    again=(seconds_until_healing, seconds_until_window_if(failing)),
    conditions=_conditions,
)
