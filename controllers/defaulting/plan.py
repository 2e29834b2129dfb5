"""What to do about a VM whose hardware may be undecided."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.defaulting.observe import State

RUNNING_SECONDS = 4 * 3600.0
"""A running VM's stop is heard of, by its status. Should that be missed, it is found after this time."""


@dataclass(frozen=True)
class Complete:
    reason: str


@dataclass(frozen=True)
class DropNote:
    """It says of itself that it is to be completed, and is not."""

    reason: str


@dataclass(frozen=True)
class Wait:
    seconds: float | None
    """until it is looked at again, if nothing is heard of it before; None: when it changes"""
    reason: str


Action = Complete | DropNote | Wait


def plan(state: State) -> Action:
    machine = state.machine
    if machine.deleting:
        return Wait(None, "it is being deleted")
    if not machine.undefaulted:
        return DropNote("its hardware is decided") if machine.noted else Wait(None, "its hardware is decided")
    if state.left_alone is not None:
        return DropNote(state.left_alone) if machine.noted else Wait(None, state.left_alone)
    if state.instance == "running":
        return Wait(RUNNING_SECONDS, "it runs: a change now would only say that it must be restarted")
    return Complete("no instance of it exists" if state.instance == "none" else "its instance is going")
