"""The base of the actions of a plan."""

from typing import ClassVar, Generic, TypeVar

from poolhouse.api.apimachinery.reasons import Reason
from poolhouse.runtime.batch_writer import ExpectedEvents

S = TypeVar("S")


class Action(Generic[S]):
    """Something that a set does, as a value. An action knows all that belongs to it, apart from the requests that it
    causes. `S` is the snapshot of the set.

    A kind derives one base with `reasons`, and from that base each action with `past`."""

    reasons: ClassVar[type[Reason]]
    """the reasons of the kind's events"""
    past: ClassVar[str]
    """describes the action in events"""
    verb: ClassVar[str]
    """the name of the action in plans and logs"""
    succeeded: ClassVar[Reason]
    """the reasons of the action's events"""
    failed: ClassVar[Reason]
    concerns_vm: ClassVar[bool] = True
    """False for actions on objects that users do not look for in a plan"""

    name: str
    """of the VM or VMI, or of the object that `concerns_vm` excludes"""
    reason: str

    def __init_subclass__(cls, *, past: str = "", reasons: type[Reason] | None = None) -> None:
        if reasons is not None:
            cls.reasons = reasons
        if past:
            cls.past, cls.verb = past, cls.__name__
            cls.succeeded, cls.failed = cls.reasons.of(f"Successful{cls.verb}"), cls.reasons.of(f"Failed{cls.verb}")

    def after(self, snapshot: S) -> S:
        """The snapshot after the action has succeeded."""
        return snapshot

    def expected_events(self) -> ExpectedEvents:
        """The events that show the controllers that the action has succeeded."""
        return ExpectedEvents()
