"""Bytes in, a document out: everything that is refused before anybody looks at what it says.

JSON has corners on which parsers differ (duplicate keys, NaN, lone surrogates, numbers without end). Two parsers that
differ are a hole in admission: the one that checks must read what the one that stores reads. So each corner is refused.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

BODY_LIMIT_BYTES = 3 * 1024 * 1024
"""the API server takes no larger object either"""

DEPTH_LIMIT = 100
"""a VirtualMachine is about 12 levels deep; whatever walks a document may then recurse"""

VALUES_LIMIT = 200_000
"""ten thousand disks are half of that; small enough to be read in a fraction of a second"""

INTEGER_LIMIT = 1 << 63
"""the API server stores larger ones as floats, which are other numbers"""


class Unreadable(Exception):
    """The request is refused as it stands: an HTTP status, and a sentence for the one who sent it."""

    def __init__(self, status: int, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_seconds = retry_after_seconds


def acceptable(content_type: str | None, content_encoding: str | None, content_length: str | None) -> None:
    """Raises `Unreadable` for what its headers already rule out."""
    if (content_type or "").split(";")[0].strip().lower() != "application/json":
        raise Unreadable(415, f"Content-Type must be application/json, not {_shown(content_type or 'absent')}")
    # No decoder, no decompression bomb. API servers and kubectl send admission requests uncompressed.
    if (content_encoding or "identity").strip().lower() != "identity":
        raise Unreadable(415, f"Content-Encoding {_shown(content_encoding or '')} is not accepted: send plain JSON")
    if content_length is not None and content_length.isdigit() and len(content_length) < 20:
        within_limit(int(content_length))


def within_limit(size_bytes: int) -> None:
    if size_bytes >= BODY_LIMIT_BYTES:
        raise Unreadable(413, f"the body must be smaller than {BODY_LIMIT_BYTES} bytes")


def parse(raw: bytes) -> dict[str, Any]:
    """The one JSON object in the body. Raises `Unreadable`."""
    within_limit(len(raw))
    text = _decoded(raw)
    if text.count(",") + text.count("{") + text.count("[") > VALUES_LIMIT:
        raise Unreadable(413, f"the document has more than {VALUES_LIMIT} values")
    try:
        document = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_int=_integer, parse_float=_finite
        )
    except RecursionError:
        raise Unreadable(400, f"the document is nested deeper than {DEPTH_LIMIT} levels") from None
    except json.JSONDecodeError as error:
        raise Unreadable(
            400, f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    if not isinstance(document, dict):
        raise Unreadable(400, f"the body must be a JSON object, not {_named(document)}")
    _shallow(document)
    if "\\ud" in text.lower():
        _no_lone_surrogate(document)
    return document


def _decoded(raw: bytes) -> str:
    if raw.startswith(b"\xef\xbb\xbf"):
        raise Unreadable(400, "the body starts with a byte order mark; JSON has none")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(400, f"the body is not UTF-8: byte {error.start} is {raw[error.start]:#04x}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Unreadable(400, f"the key {_shown(twice)} stands twice in one object")
    return document


def _no_constant(name: str) -> NoReturn:
    raise Unreadable(400, f"{name} is not a JSON number")


def _integer(digits: str) -> int:
    # Measured before it is converted: converting a million digits takes seconds.
    if len(digits) > 20 or not -INTEGER_LIMIT <= (number := int(digits)) < INTEGER_LIMIT:
        raise Unreadable(400, f"the number {_shown(digits)} does not fit into 64 bits")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise Unreadable(400, f"the number {_shown(digits)} is beyond what a double can hold")
    return number


def _shallow(document: dict[str, Any]) -> None:
    level: list[Any] = [document]
    for _ in range(DEPTH_LIMIT):
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise Unreadable(400, f"the document is nested deeper than {DEPTH_LIMIT} levels")


def _no_lone_surrogate(document: dict[str, Any]) -> None:
    try:
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise Unreadable(400, "a string holds half of a surrogate pair, which is no character") from None


def _named(value: object) -> str:
    names = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _shown(text: str) -> str:
    """A stranger's text inside a sentence of ours: short, and with nothing in it that a terminal or a log obeys."""
    return json.dumps(text if len(text) <= 60 else text[:57] + "...")
