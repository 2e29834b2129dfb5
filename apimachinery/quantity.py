"""Kubernetes quantities as numbers."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Any

DECIMAL = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
MOST = 2**63 - 1

_FORM = re.compile(rf"(?P<number>[+-]?{DECIMAL})(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{{1,3}})?")
_TENS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_TWOS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LONGEST = 64


def to_int(value: Any) -> int | None:
    """Rounded up to a whole number, as Kubernetes' own library does; None for what is no quantity."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or len(value) > _LONGEST or (found := _FORM.fullmatch(value)) is None:
        return None
    number, suffix = Decimal(found["number"]), found["suffix"] or ""
    if suffix in _TWOS:
        number *= 2 ** _TWOS[suffix]
    else:
        number = number.scaleb(_TENS[suffix] if suffix in _TENS else int(suffix[1:]))
    return int(number.to_integral_value(ROUND_CEILING))
