"""A VM that needs an action which must wait."""

from dataclasses import dataclass

from controllers.pool.reasons import PoolReason


@dataclass(frozen=True)
class Waiting:
    """A VM that needs an action, and why the action must wait."""

    name: str
    reason: str
    progressing: PoolReason | None = None
    """the reason of the condition Progressing while updates wait for this"""
