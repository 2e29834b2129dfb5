"""What the rules of a pool want to do to VMs that somebody may use, and the gates that delay it.

A rule wants a `Disruption`. Nothing else in this package stops a VM. A `Gate` is a limit that holds for several rules.
Its answer is a sentence, or the action that must come first. The gates are asked in their order, and the first answer
is the reason that `poolhouse why`, plans and conditions show. `controllers.pool.gates.table` lists the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, auto
from functools import cached_property
from typing import Literal

from controllers.pool.actions import Action
from controllers.pool.reasons import PoolReason
from controllers.pool.selection import DisruptionBudget
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.waiting import Waiting
from controllers.pool.zones import ZoneGuard
from controllers.shared.vm import VM
from poolhouse.api.kinds.pool_lifecycle import Transition

DisruptionCause = Literal["ScaleIn", "Replacement", "Healing", "Restore", "Update", "Rollback", "Lifetime"]
"""Why a rule wants a disruption."""
CAUSES: Mapping[DisruptionCause, tuple[Transition, str]] = {
    "ScaleIn": ("Terminating", "the pool has more VMs than `replicas`"),
    "Replacement": ("Terminating", "with `maxSurge`, a new VM has taken the place of an old one"),
    "Healing": ("Terminating", "the VM fails"),
    "Restore": ("Restarting", "a user undoes an update with its snapshots"),
    "Update": ("Restarting", "the template has changed"),
    "Rollback": ("Restarting", "the update was aborted, and VMs get the former template again"),
    "Lifetime": ("Restarting", "the VMI is older than `maxLifetimeSeconds`"),
}
"""The lifecycle transition whose hooks come before the stop of the VM, and what has happened, for users."""


class Effect(IntEnum):
    """What a disruption does to the guest, from the least to the most."""

    CHANGES = auto()
    """The guest keeps running, or does not run."""
    MIGRATES = auto()
    """KubeVirt migrates the guest for the change."""
    RESTARTS_LATER = auto()
    """A restart follows for the change. From now on the VM counts as one that is stopped."""
    STOPS = auto()
    """The guest stops, after its lifecycle hooks."""


@dataclass(frozen=True)
class Disruption:
    """What a rule wants to do to one VM."""

    vm: VM
    cause: DisruptionCause
    make: Callable[[], Action | None]
    """Makes the action, once the gates are open. None while another rule must first prepare the VM for it."""
    effect: Effect = Effect.STOPS
    updates: bool = False
    """whether the VM gets the pool's template by it"""
    begun: bool = False
    """whether the VM counts as in progress already, so that it takes no other place in the disruption budget"""
    prepared: bool = False
    """whether the VM is the next to be stopped, because its snapshot is taken"""

    @property
    def transition(self) -> Transition:
        return CAUSES[self.cause][0]

    @property
    def in_progress(self) -> bool:
        """Whether the VM has a place in the disruption budget already. A held VM has one, whichever rule holds it."""
        return self.begun or self.vm.held


@dataclass
class Taken:
    """What the disruptions of a plan that were let through leave for those after them."""

    budget: DisruptionBudget
    zones: ZoneGuard
    stopped: list[Disruption] = field(default_factory=list)
    updated: int = 0
    """VMs that get the template"""

    def add(self, wanted: Disruption) -> None:
        if wanted.effect >= Effect.RESTARTS_LATER:
            self.budget = self.budget.without(wanted.vm, begun=wanted.in_progress)
            self.zones = self.zones.without(wanted.vm)
            self.stopped.append(wanted)


Answer = Action | str
"""Why a disruption must wait, or what must be done before it. An empty text lets the disruption through."""


@dataclass(frozen=True)
class Gate:
    name: str
    ask: Callable[[PoolSnapshot, datetime, Disruption, Taken], Answer]
    holds_for: Callable[[DisruptionCause], bool]
    """whether the gate can delay a disruption of this cause"""
    text: str
    """when the gate is closed, for users"""
    least: Effect = Effect.RESTARTS_LATER
    """The gate holds for disruptions with this effect, and with more."""
    keeps_place: bool = False
    """whether a prepared VM that waits here keeps its place in the disruption budget"""
    progressing: PoolReason | None = None
    """The reason of the condition Progressing while an update waits here, if the update can wait for long. None for a
    gate that the pool's own progress opens."""

    def concerns(self, cause: DisruptionCause, effect: Effect) -> bool:
        return self.holds_for(cause) and effect >= self.least


Wanted = Disruption | Action | Waiting
"""What a rule yields. An action, or a reason to wait, of the rule itself needs no gate."""


@dataclass(frozen=True)
class Decision:
    """The answer to one thing that a rule wants: its action, or why it waits."""

    wanted: Wanted
    action: Action | None = None
    waiting: Waiting | None = None
    stop: Disruption | None = None
    """the disruption whose action stops the VM, after its lifecycle hooks"""

    @property
    def name(self) -> str:
        """of the VM"""
        return self.wanted.vm.name if isinstance(self.wanted, Disruption) else self.wanted.name


def decide(
    snapshot: PoolSnapshot, now: datetime, wanted: Iterable[Wanted], gates: Iterable[Gate], most: int | None = None
) -> Iterator[Decision]:
    """A decision for each thing that a rule wants, one after another, until `most` disruptions are let through."""
    way, through = Way(snapshot, now, tuple(gates)), 0
    for each in wanted:
        if most is not None and through >= most:
            return
        if isinstance(each, Waiting):
            yield Decision(each, waiting=each)
        elif isinstance(each, Action):
            yield Decision(each, each)
        else:
            found = way.take(each)
            through += found.waiting is None
            yield found


@dataclass
class Way:
    """The way through the gates for the disruptions of one rule."""

    snapshot: PoolSnapshot
    now: datetime
    gates: tuple[Gate, ...]
    _concerned: dict[tuple[DisruptionCause, Effect], tuple[Gate, ...]] = field(default_factory=dict)

    @cached_property
    def taken(self) -> Taken:
        return Taken(DisruptionBudget.of(self.snapshot), ZoneGuard.of(self.snapshot))

    def take(self, wanted: Disruption) -> Decision:
        """Asks the gates about a disruption, and counts it if they let it through."""
        closed, answer = self._first_answer(wanted)
        if isinstance(answer, Action):
            closed = None
        if closed is None or (closed.keeps_place and wanted.prepared):
            self.taken.add(wanted)
        self.taken.updated += wanted.updates and (wanted.prepared or closed is None)
        if closed is not None:
            return Decision(wanted, waiting=Waiting(wanted.vm.name, str(answer), closed.progressing))
        if isinstance(answer, Action):
            return Decision(wanted, answer)
        return Decision(wanted, wanted.make(), stop=wanted if wanted.effect is Effect.STOPS else None)

    def _first_answer(self, wanted: Disruption) -> tuple[Gate | None, Answer | None]:
        kind = wanted.cause, wanted.effect
        if kind not in self._concerned:
            self._concerned[kind] = tuple(gate for gate in self.gates if gate.concerns(*kind))
        for gate in self._concerned[kind]:
            if answer := gate.ask(self.snapshot, self.now, wanted, self.taken):
                return gate, answer
        return None, None
