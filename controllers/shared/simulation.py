"""Simulates a controller: plans, applies the plan to the snapshot alone, and plans again until nothing is to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

STEP = timedelta(minutes=10)
"""Simulated time between two plans: long enough for everything that succeeds."""

S = TypeVar("S")


class Plan(Protocol):
    @property
    def actions(self) -> Sequence[Any]: ...


P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Simulation(Generic[P]):
    steps: tuple[P, ...]
    """Plans that have something to do, each made after the one before is done."""
    last: P | None
    """The plan after all steps; None where `max_steps` ended the simulation."""

    @property
    def complete(self) -> bool:
        return self.last is not None


def simulate(
    snapshot: S, now: datetime, plan: Callable[[S, datetime], P], after: Callable[[Any, S], S], max_steps: int
) -> Simulation[P]:
    """`after` returns the snapshot as a successful action leaves it."""
    steps: list[P] = []
    for number in range(max_steps):
        decided = plan(snapshot, now + number * STEP)
        if not decided.actions:
            return Simulation(tuple(steps), decided)
        steps.append(decided)
        for action in decided.actions:
            snapshot = after(action, snapshot)
    return Simulation(tuple(steps), None)
