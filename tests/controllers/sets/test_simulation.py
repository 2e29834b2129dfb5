"""Plans that are applied to a snapshot only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from controllers.sets.simulation import MAX_ACTIONS, Simulation, simulate

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Subtract:
    number: int


@dataclass(frozen=True)
class Countdown:
    actions: tuple[Subtract, ...] = ()


def plan(left: int, now: datetime) -> Countdown:
    return Countdown((Subtract(1),) if left else ())


def after(left: int, actions: Iterable[Subtract]) -> int:
    return left - sum(action.number for action in actions)


def counted(max_steps: int) -> Simulation[Countdown]:
    return simulate(3, NOW, plan, after, max_steps)


def test_a_simulation_ends_when_nothing_is_left_to_do() -> None:
    found = counted(9)
    assert (len(found.steps), found.complete, found.last) == (3, True, Countdown())


def test_a_simulation_ends_with_the_plan_that_reaches_the_limit_of_actions() -> None:
    found = simulate(9, NOW, lambda left, now: Countdown((Subtract(0),) * left), after, 99, max_actions=10)
    assert ([len(step.actions) for step in found.steps], found.complete) == ([9, 9], False)


def test_a_simulation_that_reaches_its_limit_is_incomplete() -> None:
    found = counted(2)
    assert (len(found.steps), found.complete, found.last) == (2, False, None)


def test_a_simulation_without_an_end_is_bounded() -> None:
    found = simulate(0, NOW, lambda number, now: Countdown((Subtract(-1),) * 250), after, 10**6)
    assert (sum(len(step.actions) for step in found.steps), found.complete) == (MAX_ACTIONS, False)
