"""Reasons of conditions and events: enumerated, each with the sentence that the reference page prints."""

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """Base of a package's reasons. A member is its CamelCase text and its documentation:

        class PoolReason(Reason):
            SUCCESSFUL_CREATE = "SuccessfulCreate", "The controller created a VM."

    `str(member)` and JSON give the text alone. `member.doc` is the sentence; docs/reference/reasons.md is made of it.
    """

    doc: str

    def __new__(cls, text: str, doc: str) -> Self:
        member = str.__new__(cls, text)
        member._value_ = text
        member.doc = doc
        return member

    @classmethod
    def of(cls, text: str) -> Self:
        """The member with this text; KeyError for another text."""
        return {str(each): each for each in cls}[text]
