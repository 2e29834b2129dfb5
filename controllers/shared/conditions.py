"""Builds the conditions of a status, and sets their transition times."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from poolhouse.api.apimachinery.counting import join_first
from poolhouse.api.apimachinery.reasons import Reason
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.conditions import SINCE_TRUE, WHILE_TRUE
from poolhouse.api.kinds.metav1 import MAX_MESSAGE, Condition


def condition(type: str, holds: bool, reason: Reason | str, message: str = "") -> Condition:
    """A longer message is cut. It may quote an annotation or the status of another controller, which have no limit, and
    a status that cannot be written would hide all other conditions."""
    return Condition(type=type, status="True" if holds else "False", reason=str(reason), message=message[:MAX_MESSAGE])


def find_condition(conditions: Iterable[Condition], type: str, status: str | None = None) -> Condition | None:
    """The condition of this type, if it has this status or any status will do."""
    return next((each for each in conditions if each.type == type and status in (None, each.status)), None)


def set_times(
    conditions: Iterable[Condition], before: Iterable[Condition], *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The conditions with transition times and the observed generation.

    A condition keeps its time while its status is the same, so that an unchanged status is not written again.
    Conditions of `SINCE_TRUE` are omitted until they are True for the first time."""
    known, found = {each.type: each for each in before}, []
    for each in conditions:
        old = known.get(each.type)
        if old is not None or each.status != "False" or each.type not in SINCE_TRUE:
            found.append(set_time(each, old, generation=generation, now=format_time(now)))
    return tuple(found)


def set_time(condition: Condition, old: Condition | None, *, generation: int, now: str) -> Condition:
    since = old.last_transition_time if old is not None and old.status == condition.status else now
    return condition.model_copy(update={"last_transition_time": since, "observed_generation": generation})


def merge(
    conditions: Iterable[Condition], before: Sequence[Condition], *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Replaces the conditions of the same types in `before`, with the times of `set_times`. Other conditions stay, but
    not those that are present only while they are True."""
    fresh = set_times(conditions, before, generation=generation, now=now)
    types = {each.type for each in fresh} | WHILE_TRUE
    return (*(each for each in before if each.type not in types), *fresh)


def join_names(names: Iterable[str]) -> str:
    """The first names for a message: `a, b, c, d, e and 3 more`."""
    return join_first(list(names))


def names_and_verb(names: Collection[str], singular: str, plural: str) -> str:
    """The sorted names with the verb of their number: `a is` or `a, b are`."""
    return f"{join_names(sorted(names))} {singular if len(names) == 1 else plural}"
