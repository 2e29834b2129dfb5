"""A VM that needs an action which must wait."""

from dataclasses import dataclass, field

from controllers.pool.reasons import PoolReason


@dataclass(frozen=True)
class Waiting:
    """A VM that needs an action, and why the action must wait."""

    name: str
    reason: str
    gate: str = field(default="", compare=False)
    """the name of the gate that delays the action, or "" if its rule does"""
    progressing: PoolReason | None = field(default=None, compare=False)
    """the reason of the condition Progressing while updates wait for this"""
