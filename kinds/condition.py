"""Conditions, as every Kubernetes kind has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kinds.model import Int64, Model, Time, keyed


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


Conditions = Annotated[tuple[Condition, ...], Field(json_schema_extra=keyed("type"))]
