"""Types of Kubernetes' `meta/v1` that several kinds share: Condition and LabelSelector."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field

from kinds.model import ATOMIC_LIST, AtomicModel, Int64, Model, Time, Tuple, list_map


class Condition(Model):
    """One thing that is so, is not so, or is not known."""

    type: Annotated[str, Field(max_length=316)]
    """What the condition is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(max_length=1024)] = ""
    """Why, in one CamelCase word that programs may rely on."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, in words for people."""
    last_transition_time: Time | None = None
    """When `status` last changed."""
    observed_generation: Annotated[Int64, Field(ge=0)] | None = None
    """The generation of the object that the condition is about."""


def with_transition_times(
    said: Iterable[Condition], before: Iterable[Condition], *, generation: int, now: str, announced: Container[str] = ()
) -> Iterator[Condition]:
    """With the times of their last transitions: those that didn't change keep theirs, so that an unchanged status stays
    equal and is not written again. Conditions of the `announced` types are left out while they were never True."""
    known = {c.type: c for c in before}
    for c in said:
        old = known.get(c.type)
        if old is None and c.status == "False" and c.type in announced:
            continue
        since = old.last_transition_time if old and old.status == c.status else now
        yield c.model_copy(update={"last_transition_time": since, "observed_generation": generation})


Conditions = Annotated[Tuple[Condition], Field(json_schema_extra=list_map("type"))]


class LabelSelectorRequirement(Model):
    """One thing a label must be."""

    key: str
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """In and NotIn compare the label's value with `values`; Exists and DoesNotExist look at the key alone."""
    values: Annotated[Tuple[str], Field(max_length=256, json_schema_extra=ATOMIC_LIST)] = ()
    """What In and NotIn compare with; left out for the other two."""


class LabelSelector(AtomicModel):
    """Selects by labels: everything in it must hold. An empty selector holds for everything."""

    match_labels: Annotated[dict[str, str], Field(max_length=256, default_factory=dict)]
    """Labels that must be there with exactly these values."""
    match_expressions: Annotated[
        Tuple[LabelSelectorRequirement], Field(max_length=64, json_schema_extra=ATOMIC_LIST)
    ] = ()
    """Further requirements, each of which must hold."""
