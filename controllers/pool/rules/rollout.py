"""The rule that updates VMs to the pool's template."""

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from controllers.pool import live_updates
from controllers.pool.gates.disruptions import Disruption, Effect, Wanted
from controllers.pool.reasons import PoolReason
from controllers.pool.restores import awaits_restore, continued_restore, requested_restore
from controllers.pool.rules.rule import Rule
from controllers.pool.rules.update_actions import effect_of_update, save_revision, update_action
from controllers.pool.selection import is_prepared, restart, update_has_begun, update_order
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.waiting import Waiting
from controllers.shared.vm import VM

UNMANAGED = "the update strategy is unmanaged"


def update(snapshot: PoolSnapshot, now: datetime) -> Iterator[Wanted]:
    """What each VM needs that does not match the template, in the order of the selection policy."""
    behind = [vm for vm in snapshot.active if _needs_action(snapshot, vm) and not vm.terminating]
    unmanaged = snapshot.pool.spec.update_strategy.unmanaged is not None
    for vm in behind if unmanaged else update_order(snapshot, behind):
        if restore := continued_restore(snapshot, vm):
            # KubeVirt has halted the VM, so the pool must start it again, with any strategy.
            yield restore
        elif unmanaged:
            yield Waiting(vm.name, UNMANAGED)
        else:
            yield _wanted(snapshot, vm, now)


def _needs_action(snapshot: PoolSnapshot, vm: VM) -> bool:
    return snapshot.outdated(vm) or live_updates.needs_restart(snapshot, vm) or awaits_restore(snapshot, vm)


def _wanted(snapshot: PoolSnapshot, vm: VM, now: datetime) -> Wanted:
    restore, prepared = requested_restore(snapshot, vm), is_prepared(snapshot, vm)
    # A VM that is available and has the template takes no place in the budget before its restore begins.
    begun = prepared or (update_has_begun(snapshot, vm) and not (restore and vm.available))
    prepared = prepared and snapshot.outdated(vm)
    if restore is not None:
        effect = Effect.CHANGES if vm.halted else Effect.STOPS
        return Disruption(vm, "Restore", restore, effect, updates=True, begun=begun, prepared=prepared)
    disruption = partial(Disruption, vm, "Rollback" if snapshot.aborted else "Update", begun=begun, prepared=prepared)
    if not snapshot.outdated(vm):
        if why := live_updates.waits_for(snapshot, vm, now):
            return Waiting(vm.name, why, progressing=PoolReason.UPDATING)
        reason = f"the template has changed{_because(live_updates.why_restart(snapshot, vm))}"
        return disruption(partial(restart, vm, reason))
    effect, quiet = effect_of_update(snapshot, vm)
    if effect is Effect.RESTARTS_LATER and snapshot.pool.live_update == "Require":
        why = live_updates.waits_forever(snapshot, live_updates.refusal(snapshot, vm))
        return Waiting(vm.name, why, progressing=PoolReason.UPDATING)
    return disruption(partial(update_action, snapshot, vm, quiet, now), effect, updates=True)


def _because(why: str) -> str:
    return f"; {why}" if why else ""


UPDATES = Rule(update, before=save_revision, in_bursts=True, again=(live_updates.seconds_until_late,))
