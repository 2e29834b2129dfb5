"""Label selectors, in the shape that all of Kubernetes writes them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kinds.model import ATOMIC_LIST, Atomic, Model


class LabelSelectorRequirement(Model):
    """One thing a label must be."""

    key: str
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """In and NotIn compare the label's value with `values`; Exists and DoesNotExist look at the key alone."""
    values: Annotated[tuple[str, ...], Field(max_length=256, json_schema_extra=ATOMIC_LIST)] = ()
    """What In and NotIn compare with; left out for the other two."""


class LabelSelector(Atomic):
    """Selects by labels: everything in it must hold. An empty selector holds for everything."""

    match_labels: Annotated[dict[str, str], Field(max_length=256, default_factory=dict)]
    """Labels that must be there with exactly these values."""
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...], Field(max_length=64, json_schema_extra=ATOMIC_LIST)
    ] = ()
    """Further requirements, each of which must hold."""
