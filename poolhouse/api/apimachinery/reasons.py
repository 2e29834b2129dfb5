"""The base class of reasons of conditions and events."""

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """Base of a package's reasons. A member has a CamelCase text and a documentation:

        class PoolReason(Reason):
            SUCCESSFUL_CREATE = "SuccessfulCreate", "The controller created a VM."

    `str(member)` and JSON give the text alone. docs/reference/reasons.md is generated from `member.doc`.
    """

    doc: str

    def __new__(cls, text: str, doc: str) -> Self:
        member = str.__new__(cls, text)
        member._value_ = text
        member.doc = doc
        return member

    @classmethod
    def of(cls, text: str) -> Self:
        """The member with this text. Raises KeyError if there is none."""
        return {str(each): each for each in cls}[text]
