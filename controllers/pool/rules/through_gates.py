"""Asks the gates about what a rule wants."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from controllers.pool.actions import Action
from controllers.pool.gates import hooks
from controllers.pool.gates import table as gates
from controllers.pool.gates.disruptions import Decision, Disruption, decide
from controllers.pool.rules.rule import Rule
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.pool.waiting import Waiting


@once
def decisions(snapshot: PoolSnapshot, now: datetime, rule: Rule) -> tuple[Decision, ...]:
    """A decision for each thing that the rule wants. Lifecycle hooks are asked later, by `act`."""
    most = rule.most(snapshot, now) if rule.most is not None else None
    return tuple(decide(snapshot, now, rule.wanted(snapshot, now), gates.GATES, most))


def waiting(snapshot: PoolSnapshot, now: datetime, rule: Rule) -> Iterator[Waiting]:
    """The VMs for which the rule must wait."""
    for each in decisions(snapshot, now, rule) if rule.reports else ():
        if each.waiting is not None:
            update = not isinstance(each.wanted, Disruption) or each.wanted.cause == "Update"
            progressing = each.waiting.progressing if update else None
            yield replace(each.waiting, reason=f"{rule.context}{each.waiting.reason}", progressing=progressing)


def act(snapshot: PoolSnapshot, now: datetime, rule: Rule) -> tuple[list[Action], list[Waiting]]:
    """The rule's next actions, and the VMs that wait for lifecycle hooks. A VM that is not held yet gets a Hold."""
    found, waits = list[Action](), list[Waiting]()
    possible = [each for each in decisions(snapshot, now, rule) if each.action is not None]
    for each in possible[: snapshot.burst if rule.in_bursts else None]:
        assert each.action is not None
        answer = hooks.after_hooks(snapshot, each.stop, each.action, now) if each.stop else each.action
        if isinstance(answer, Action):
            found.append(answer)
        else:
            waits.append(Waiting(each.name, answer))
    return [*rule.before(snapshot, found), *found], waits
