"""What would become of a set if all went well: one plan after the other, each carried out in the mind only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from controllers.replicaset import template
from controllers.replicaset.actions import Action, Adopt, Create, Delete, Release
from controllers.replicaset.instance import VMI, parse_vmi
from controllers.replicaset.plan import plan
from controllers.replicaset.snapshot import ReplicaSetSnapshot

Json = dict[str, Any]

MOST_STEPS = 100
BETWEEN = timedelta(minutes=10)
"""from one step to the next: as long as everything takes that goes well"""


def simulate(state: ReplicaSetSnapshot, now: datetime) -> Iterator[Json]:
    """For people and programs: `step`, `action`, `vm` and `reason`, in the order in which they would be done. The names
    that a set gives follow from its UID: before it exists nobody knows them."""
    named = bool(state.replica_set.uid)
    state = replace(state, settled=True, failure=None)
    for step in range(MOST_STEPS):
        actions = plan(state, now + step * BETWEEN).actions
        if not actions:
            return
        for action in actions:
            name = action.name if named or not isinstance(action, Create) else f"{state.replica_set.stem}-*"
            yield {"step": step + 1, "action": action.verb, "vm": name, "reason": action.reason}
            state = after(action, state)


def after(action: Action, state: ReplicaSetSnapshot) -> ReplicaSetSnapshot:
    """How an action that went well leaves the set."""
    match action:
        case Create():
            document = template.build_vmi(state.replica_set, action)
            document["metadata"]["uid"] = f"{action.name} to be"
            born = replace(parse_vmi(document), phase="Running", ready=True)
            return replace(state, owned=(*state.owned, born), taken=state.taken | {action.name})
        case Adopt():
            taken_in = [
                replace(i, owner=state.replica_set.uid, owner_name=state.replica_set.name)
                for i in state.orphans
                if i.uid == action.uid
            ]
            return replace(state, owned=(*state.owned, *taken_in), orphans=_without(action, state.orphans))
        case Delete():
            return replace(state, owned=_without(action, state.owned), taken=state.taken - {action.name})
        case Release():
            return replace(state, owned=_without(action, state.owned))


def _without(action: Adopt | Delete | Release, instances: tuple[VMI, ...]) -> tuple[VMI, ...]:
    return tuple(i for i in instances if i.uid != action.uid)
