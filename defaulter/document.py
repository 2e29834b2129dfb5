"""What counts as a request's JSON: one reading, the one that the API server and the webhook have too.

JSON has corners on which parsers differ: keys given twice, NaN, numbers without end, halves of characters. Each is
refused, because a document that is checked in one reading and stored in another was never checked.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from apimachinery.problem import Problem
from apimachinery.unstructured import Json
from defaulter.errors import MalformedBody
from defaulter.json_paths import Path, format_path

MOST_LEVELS = 100
"""a VirtualMachine is about 12 levels deep"""
MOST_VALUES = 200_000
"""ten thousand disks are half of that"""
INTEGERS = range(-(1 << 63), 1 << 63)
"""the API server makes a float of any other, which is another number"""


def decode(body: bytes) -> Json:
    """The object in a body. Raises `Malformed` with a sentence for the one who sent it."""
    source = _text(body)
    if source.count(",") + source.count("{") + source.count("[") > MOST_VALUES:
        raise _malformed(f"has more than {MOST_VALUES} values")
    try:
        message = json.loads(
            source, parse_constant=_no_number, parse_float=_float, parse_int=_integer, object_pairs_hook=_object
        )
    except RecursionError:
        raise _malformed(f"is nested deeper than {MOST_LEVELS} levels") from None
    except ValueError as error:
        raise _malformed(f"is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise _malformed("is JSON, but no object")
    if _deep(message):
        raise _malformed(f"is nested deeper than {MOST_LEVELS} levels")
    return message


def halves(body: bytes, document: Any) -> list[Problem]:
    """Strings that hold half of a surrogate pair, which is no character: no XML, no UTF-8 and no API server has a place
    for one. In a body without an escape that could be one, nothing is searched."""
    if b"\\ud" not in body.lower():
        return []
    return [
        Problem(format_path(path), "holds half of a surrogate pair, which is no character")
        for path in _halves(document)
    ]


def _text(body: bytes) -> str:
    if body.startswith(b"\xef\xbb\xbf"):
        raise _malformed("starts with a byte order mark, and JSON has none")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(f"is not UTF-8: can't decode byte {body[error.start]:#04x} at {error.start}") from None


def _malformed(sentence: str) -> MalformedBody:
    return MalformedBody([Problem("", sentence)])


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{_short(digits)} is too large a number")
    return value


def _integer(digits: str) -> int:
    # Measured before it is converted: a million digits take seconds.
    if len(digits) > 20 or int(digits) not in INTEGERS:
        raise ValueError(f"{_short(digits)} is too large a number")
    return int(digits)


def _short(digits: str) -> str:
    return digits if len(digits) <= 30 else digits[:27] + "..."


def _object(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"{twice!a} is given twice in one object")
    return found


def _deep(document: Json) -> bool:
    level: list[Any] = [document]
    for _ in range(MOST_LEVELS):
        level = [child for value in level for child in _children(value)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value
    return [child for child in inside if isinstance(child, dict | list)]


def _halves(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _halves(child, (*path, key)) if _whole(key) else (path,)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _halves(child, (*path, index))
    elif isinstance(value, str) and not _whole(value):
        yield path


def _whole(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)
