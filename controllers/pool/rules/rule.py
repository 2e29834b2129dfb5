"""The shape of a rule: a feature of a pool, in one module.

A rule has all that a feature adds to a pool: the disruptions that it wants, the actions that need no gate, its
conditions, and when it wants to be asked again. `controllers.pool.rules.table` lists the rules.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controllers.pool.actions import Action, Heal
from controllers.pool.gates.disruptions import Wanted
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.waiting import Waiting
from poolhouse.api.kinds.metav1 import Condition


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    blocked: str = ""
    """why the pool keeps too many VMs"""
    waits: tuple[Waiting, ...] = ()
    """VMs that need an action, with the reason why the action must wait"""
    again_seconds: float | None = None
    """Seconds until the passage of time can change the plan, or None."""

    @property
    def healed(self) -> tuple[str, ...]:
        """The names of the VMs that healing replaces."""
        return tuple(each.name for each in self.actions if isinstance(each, Heal))

    @property
    def names_disks(self) -> bool:
        """Whether VMs get disks with names from a template."""
        return any(each.names_disks for each in self.actions)


Step = Callable[[PoolSnapshot, datetime], Iterator[Action]]
Seconds = Callable[[PoolSnapshot, datetime], float | None]
"""seconds until the passage of time can change what a rule does, or None"""


def nothing(*arguments: Any) -> Iterator[Any]:
    yield from ()


@dataclass(frozen=True)
class Rule:
    wanted: Callable[[PoolSnapshot, datetime], Iterable[Wanted]] = nothing
    """what it wants to do to VMs, the most urgent first"""
    most: Callable[[PoolSnapshot, datetime], int] | None = None
    """how many of its disruptions may be let through; None for all that the gates allow"""
    before: Callable[[PoolSnapshot, Iterable[Action]], Iterator[Action]] = nothing
    """what must be done before the actions that it gets"""
    context: str = ""
    """begins the sentence of a gate, and says what the VM waits for"""
    keeps_holds: bool = False
    """whether a VM that is held stays held while a gate delays the rule"""
    in_bursts: bool = False
    """whether a plan has no more of its actions than the pool's burst"""
    reports: bool = True
    """False if a VM that waits can be exchanged for another one, so that no VM has to wait"""
    steps: tuple[Step, ...] = ()
    """actions that prevent no other rule's"""
    always: tuple[Step, ...] = ()
    """steps that are also taken while the pool is paused or deleted, because something waits for them"""
    again: tuple[Seconds, ...] = ()
    waits: Callable[[PoolSnapshot, datetime], Iterator[Waiting]] = nothing
    """further VMs that wait, for users only"""
    conditions: Callable[[PoolSnapshot, Plan, datetime], Iterator[Condition]] = nothing
