"""Compares JSON values."""

from typing import Any

import orjson


def is_unchanged(before: Any, after: Any) -> bool:
    """True if two values have the same JSON text, which is faster to find out than by a walk through both. Unlike in
    `==`, 1 equals neither true nor 1.0. False if it is not known, for example if the keys have another order."""
    if before is after:
        return True
    if type(before) is not type(after):
        return False
    if isinstance(before, dict | list):
        try:
            return before == after and orjson.dumps(before) == orjson.dumps(after)
        except (TypeError, RecursionError):  # an integer beyond 64 bits, half a surrogate pair, or too many levels
            return False
    return bool(before == after)
