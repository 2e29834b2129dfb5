"""What would become of a pool if all went well: one plan after the other, each carried out in the mind only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import singledispatch
from typing import Any

from controllers.pool import template
from controllers.pool.actions import (
    Create,
    Delete,
    Heal,
    PruneRevision,
    ReleaseDisks,
    RemoveFinalizer,
    Restart,
    ReturnDisk,
    SaveRevision,
    Update,
)
from controllers.pool.guest import VMI
from controllers.pool.machine import VM, parse_vm
from controllers.pool.naming import parent_and_ordinal
from controllers.pool.plan import Plan, plan
from controllers.pool.retained_disks import RetainedDisk
from controllers.pool.rollout import Waiting
from controllers.pool.snapshot import PoolSnapshot

Json = dict[str, Any]

MOST_STEPS = 200
BETWEEN = timedelta(minutes=10)
"""from one step to the next: as long as everything takes that goes well"""


@dataclass(frozen=True)
class Simulation:
    steps: tuple[Plan, ...]
    """each one once the one before is done"""
    complete: bool
    """nothing is left to do after them"""
    blocked: str = ""
    """why scale-in can't go on after them"""
    waits: tuple[Waiting, ...] = ()
    """what else stays undone"""
    refused: str = ""
    """why no VMs are created"""


def simulate(state: PoolSnapshot, now: datetime, most_steps: int = MOST_STEPS) -> Simulation:
    steps: list[Plan] = []
    state = replace(state, settled=True)
    refused = state.shared.message if state.shared else ""
    for step in range(most_steps):
        decided = plan(state, now + step * BETWEEN)
        if not decided.actions:
            return Simulation(tuple(steps), True, decided.blocked, decided.waits, refused)
        steps.append(decided)
        for action in decided.actions:
            state = after(action, state)
    return Simulation(tuple(steps), False, refused=refused)


def rows(foresight: Simulation) -> Iterator[Json]:
    """For people and programs: `step`, `action`, `vm` and `reason`, of those actions that are about a VM."""
    for number, step in enumerate(foresight.steps, start=1):
        for action in step.actions:
            if not isinstance(action, SaveRevision | PruneRevision):
                yield {"step": number, "action": action.verb, "vm": action.name, "reason": action.reason}


# How an action that went well leaves the pool


@singledispatch
def after(action: object, state: PoolSnapshot) -> PoolSnapshot:
    raise NotImplementedError(f"what {type(action).__name__} leads to")


@after.register
def _(action: SaveRevision, state: PoolSnapshot) -> PoolSnapshot:
    return replace(state, saved=True, revisions=(*state.revisions, state.revision))


@after.register
def _(action: Create, state: PoolSnapshot) -> PoolSnapshot:
    document = template.build_vm(state.pool, action.ordinal, state.revision)
    document["metadata"]["uid"] = f"{action.name} to be"
    born = running(parse_vm(document))
    return replace(state, machines=(*state.machines, born), taken=state.taken | {action.ordinal})


@after.register
def _(action: Delete, state: PoolSnapshot) -> PoolSnapshot:
    gone = next((m for m in state.machines if m.uid == action.uid), None)
    if gone is None:
        return state
    kept = tuple(
        RetainedDisk(gone.namespace, disk, state.pool.uid, gone.name) for disk in gone.disks if action.keep_disks
    )
    return replace(without(gone, state), kept=(*state.kept, *kept))


@after.register
def _(action: ReleaseDisks, state: PoolSnapshot) -> PoolSnapshot:
    gone = next((m for m in state.waiting if m.uid == action.uid), None)
    return state if gone is None else without(gone, state)


@after.register
def _(action: ReturnDisk, state: PoolSnapshot) -> PoolSnapshot:
    return replace(state, kept=tuple(disk for disk in state.kept if disk.name != action.disk))


@after.register
def _(action: RemoveFinalizer, state: PoolSnapshot) -> PoolSnapshot:
    return changed(action.uid, state, keeping=False)


@after.register
def _(action: Update, state: PoolSnapshot) -> PoolSnapshot:
    return changed(action.uid, state, revision=action.revision)


@after.register
def _(action: Restart, state: PoolSnapshot) -> PoolSnapshot:
    restarted = next((m for m in state.machines if m.guest is not None and m.guest.uid == action.guest), None)
    if restarted is None:
        return state
    others = tuple(m for m in state.machines if m is not restarted)
    return replace(state, machines=(*others, running(restarted)))


@after.register
def _(action: Heal, state: PoolSnapshot) -> PoolSnapshot:
    gone = next((m for m in state.machines if m.uid == action.uid), None)
    return state if gone is None else without(gone, state)


@after.register
def _(action: PruneRevision, state: PoolSnapshot) -> PoolSnapshot:
    return replace(state, revisions=tuple(each for each in state.revisions if each.name != action.name))


def running(m: VM) -> VM:
    """As it will be once it has started, if it is meant to run."""
    if not m.meant_to_run:
        return m
    guest = VMI(m.namespace, m.name, f"{m.name} to run", owner=m.uid, revision=m.revision, phase="Running")
    return replace(m, exists=True, ready=True, failures=0, guest=guest)


def changed(uid: str, state: PoolSnapshot, **facts: Any) -> PoolSnapshot:
    return replace(state, machines=tuple(replace(m, **facts) if m.uid == uid else m for m in state.machines))


def without(gone: VM, state: PoolSnapshot) -> PoolSnapshot:
    stem, ordinal = parent_and_ordinal(gone.name)
    taken = state.taken - {ordinal} if stem == state.pool.name and ordinal is not None else state.taken
    return replace(
        state,
        machines=tuple(m for m in state.machines if m.uid != gone.uid),
        waiting=tuple(m for m in state.waiting if m.uid != gone.uid),
        taken=taken,
    )
