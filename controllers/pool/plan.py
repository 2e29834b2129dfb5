"""Plans the next actions of a pool: a pure function of the snapshot and the time.

It asks the rules in `controllers.pool.rules` what they want, and the gates in `controllers.pool.gates` what must wait.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from controllers.pool.actions import Action
from controllers.pool.rules import table as rules
from controllers.pool.rules.rule import Plan, Step
from controllers.pool.rules.scale_in import SCALE_IN
from controllers.pool.rules.scale_in_candidates import blocked_reason
from controllers.pool.rules.through_gates import act, decisions, waiting
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.waiting import Waiting


def plan(snapshot: PoolSnapshot, now: datetime) -> Plan:
    """The next actions, of which the table of writes has the order.

    The plan has only what `Rule.always` allows if the pool is paused or being deleted, or if its stores do not show
    earlier writes."""
    actions = _steps(snapshot, now, [step for rule in rules.RULES for step in rule.always])
    held, left = list[Waiting](), snapshot
    rests = snapshot.pool.deleting or snapshot.pool.spec.paused
    if not rests and snapshot.synced:
        actions += _steps(snapshot, now, [step for rule in rules.RULES for step in rule.steps])
        stops, held, left = _stops(snapshot, now)
        actions += stops
    # Of a pool that rests, the gates would count VMs as in progress that no action will touch.
    waits = [*held, *(each for rule in rules.RULES if not rests for each in waiting(left, now, rule))]
    waits += [each for rule in rules.RULES for each in rule.waits(snapshot, now)]
    return Plan(tuple(actions), _blocked(snapshot, now), tuple(waits), _again_seconds(snapshot, now))


def _steps(snapshot: PoolSnapshot, now: datetime, steps: Iterable[Step]) -> list[Action]:
    return [each for step in steps for each in step(snapshot, now)]


def _stops(snapshot: PoolSnapshot, now: datetime) -> tuple[list[Action], list[Waiting], PoolSnapshot]:
    """The actions of the first rule that has any, the VMs that wait for lifecycle hooks, and the snapshot that the
    other rules see."""
    actions, held, left = list[Action](), list[Waiting](), snapshot
    for rule in rules.RULES:
        found, held_now = act(left, now, rule)
        actions += found
        held += held_now
        # A refused action must not block the next rules, so the plan continues after a failure.
        if found and snapshot.failure is None:
            break
        if found:
            left = _without(found, left, now)
    return actions, held, left


def _blocked(snapshot: PoolSnapshot, now: datetime) -> str:
    found = decisions(snapshot, now, SCALE_IN)
    reasons = [each.waiting.reason for each in found if each.waiting is not None]
    return blocked_reason(snapshot, len(found) - len(reasons), next(iter(reasons), ""), now)


def _again_seconds(snapshot: PoolSnapshot, now: datetime) -> float | None:
    times = (seconds(snapshot, now) for rule in rules.RULES for seconds in rule.again)
    return min((each for each in times if each is not None), default=None)


def _without(found: Iterable[Action], snapshot: PoolSnapshot, now: datetime) -> PoolSnapshot:
    """The snapshot in which these actions have begun, so that later rules count their VMs as unavailable."""
    begun = {each.name: each for each in found}
    vms = (begun[vm.name].begun(vm, now) if vm.name in begun else vm for vm in snapshot.vms)
    return replace(snapshot, vms=tuple(vms))
