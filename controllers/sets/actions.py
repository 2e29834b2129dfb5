"""The base of the actions of a plan."""

from operator import attrgetter
from typing import ClassVar

from poolhouse.api.apimachinery.reasons import Reason
from poolhouse.runtime.batch_writer import ExpectedEvents


class Action:
    """Something that a set does, as a value. An action knows all that belongs to it, apart from the requests that it
    causes.

    A kind derives one base with `reasons`, and from that base each action with `past`. `creates` and `deletes` are the
    attributes with the name of the object that the action creates, and the UID of the one that it deletes."""

    reasons: ClassVar[type[Reason]]
    """the reasons of the kind's events"""
    past: ClassVar[str]
    """describes the action in events"""
    verb: ClassVar[str]
    """the name of the action in plans and logs"""
    succeeded: ClassVar[Reason]
    """the reasons of the action's events"""
    failed: ClassVar[Reason]
    creates: ClassVar[str] = ""
    deletes: ClassVar[str] = ""
    concerns_vm: ClassVar[bool] = True
    """False for actions on objects that users do not look for in a plan"""

    name: str
    """of the VM or VMI, or of the object that `concerns_vm` excludes"""
    reason: str

    def __init_subclass__(
        cls, *, past: str = "", creates: str = "", deletes: str = "", reasons: type[Reason] | None = None
    ) -> None:
        if reasons is not None:
            cls.reasons = reasons
        cls.verb, cls.creates, cls.deletes = cls.__name__, creates, deletes
        if past:
            cls.past = past
            cls.succeeded, cls.failed = cls.reasons.of(f"Successful{cls.verb}"), cls.reasons.of(f"Failed{cls.verb}")

    def expected_events(self) -> ExpectedEvents:
        """The events that show the controllers that the action has succeeded."""
        return ExpectedEvents(*((attrgetter(each)(self),) if each else () for each in (self.creates, self.deletes)))
