"""A VM that needs an action which must wait."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A VM that needs an action, and why the action must wait."""

    name: str
    reason: str
