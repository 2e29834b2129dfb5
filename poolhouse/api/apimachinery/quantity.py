"""Converts Kubernetes quantities to numbers."""

import math
import re
from fractions import Fraction
from typing import Any

DECIMAL = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
MAX_INT64 = 2**63 - 1

_QUANTITY = re.compile(rf"(?P<number>[+-]?{DECIMAL})(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{{1,3}})?")
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MAX_LENGTH = 64


def to_int(value: Any) -> int | None:
    """The value of a JSON string or number as a quantity of Kubernetes, rounded away from zero; None if invalid.

    Two results differ from Kubernetes on purpose. A value above the largest int64 stays exact, so that a check can
    refuse it. Text without a digit ("Gi", which Kubernetes reads as 0) is invalid.
    """
    number = to_fraction(value)
    if number is None:
        return None
    return math.ceil(number) if number > 0 else math.floor(number)


def to_fraction(value: Any) -> Fraction | None:
    """The exact value of a JSON string or number as a quantity of Kubernetes; None if invalid.

    Spaces around a string are ignored. A string with a line break is invalid, because Go parses the JSON text, in which
    control characters are escaped.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    text = repr(value) if isinstance(value, float) else value
    if not isinstance(text, str) or any(character < " " for character in text):
        return None
    text = text.strip()
    if len(text) > _MAX_LENGTH or (found := _QUANTITY.fullmatch(text)) is None:
        return None
    number, suffix = Fraction(found["number"]), found["suffix"] or ""
    if suffix in _POWERS_OF_TWO:
        return number * (1 << _POWERS_OF_TWO[suffix])
    return number * Fraction(10) ** (_POWERS_OF_TEN[suffix] if suffix in _POWERS_OF_TEN else int(suffix[1:]))


def for_people(value: Any) -> str:
    """A size as a person reads it: `135.7Mi` for 142270792. A quantity with a unit stays as it is."""
    number = to_fraction(value)
    if number is None or not str(value).strip().isdigit():
        return "" if value is None else str(value)
    unit, size = max(
        ((unit, 1 << power) for unit, power in _POWERS_OF_TWO.items() if number >= 1 << power),
        key=_size,
        default=("", 1),
    )
    return f"{float(number / size):.1f}".removesuffix(".0") + unit


def _size(unit: tuple[str, int]) -> int:
    return unit[1]
