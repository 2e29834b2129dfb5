"""Conditions of an object's status: how they are made, and when their transition times change."""

from collections.abc import Container, Iterable, Sequence
from datetime import datetime

from apimachinery.reasons import Reason
from apimachinery.timestamps import format_time
from kinds.metav1 import Condition, with_transition_times

MAX_NAMES = 5


def condition(type: str, holds: bool, reason: Reason | str, message: str = "") -> Condition:
    return Condition(type=type, status="True" if holds else "False", reason=str(reason), message=message)


def set_times(
    conditions: Iterable[Condition],
    before: Sequence[Condition],
    *,
    generation: int,
    now: datetime,
    optional: Container[str] = (),
) -> tuple[Condition, ...]:
    """The conditions with their transition times and the generation that they are about.

    A condition whose status did not change keeps its time, so that an unchanged status stays equal and is not written
    again. Conditions of `optional` types are left out while they have never been True."""
    return tuple(
        with_transition_times(conditions, before, generation=generation, now=format_time(now), announced=optional)
    )


def merge(
    conditions: Iterable[Condition], before: Sequence[Condition], *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """As `set_times`, after the conditions of all other types, which stay as they are."""
    fresh = set_times(conditions, before, generation=generation, now=now)
    types = {each.type for each in fresh}
    return (*(each for each in before if each.type not in types), *fresh)


def join_names(names: Iterable[str]) -> str:
    """The first names for a message: `a, b, c, d, e and 3 more`."""
    found = list(names)
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return ", ".join(found[:MAX_NAMES]) + more
