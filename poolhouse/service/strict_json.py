"""Parses JSON for admission: refuses every document that two JSON parsers may read differently.

Parsers disagree about duplicate keys, NaN, lone surrogates and numbers beyond 64 bits. The API server must store the
document that admission has checked, so a document with any of them is refused. Depth and number of values are limited,
so that callers may use recursion.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

import orjson

from poolhouse.api.apimachinery.unstructured import Json

Path = tuple[str | int, ...]

MAX_DEPTH = 100
"""maximum number of levels; a VirtualMachine has about 12"""
MAX_VALUES = 200_000
"""maximum number of values, which are parsed in a fraction of a second; a VM with 10,000 disks has half as many"""
INT64 = range(-(1 << 63), 1 << 63)
"""Accepted integers. The API server converts an integer outside of this range to a float."""
_STRING = re.compile(r'"(?:[^"\\]+|\\.)*+(?:"|\Z)', re.DOTALL)
"""A string, or the rest of a text in which one does not end: so each character is read once."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class InvalidJSON(ValueError):
    """The body is invalid. The message says what is wrong."""


class TooManyValues(InvalidJSON): ...


def loads(body: bytes, *, allow_lone_surrogates: bool = False, large_integers: bool = False) -> Json:
    """The JSON object in a body. Raises `InvalidJSON`. With `large_integers`, an integer beyond 64 bits becomes a
    float, as in the API server."""
    document = parse_canonical(body)
    return parse_any(body, allow_lone_surrogates, large_integers) if document is None else document


def parse_any(body: bytes, allow_lone_surrogates: bool = False, large_integers: bool = False) -> Json:
    text = _decode(body)
    # A text such as a script of cloud-init may have as many commas.
    if _count_values(text) > MAX_VALUES and _count_values(_STRING.sub("", text)) > MAX_VALUES:
        raise TooManyValues(f"the document has more than {MAX_VALUES} values")
    try:
        document = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer_or_float if large_integers else _integer,
            parse_float=_float,
        )
    except RecursionError:
        raise InvalidJSON(f"the document is nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise InvalidJSON(f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    if not isinstance(document, dict):
        raise InvalidJSON(f"the body must be a JSON object, not {_type_name(document)}")
    _check_depth(document)
    # Only an escape sequence can contain a lone surrogate, because UTF-8 cannot encode it.
    if not allow_lone_surrogates and "\\ud" in text.lower() and next(lone_surrogates(document), None) is not None:
        raise InvalidJSON("a string contains a lone surrogate, which is not a character")
    return document


def _count_values(text: str) -> int:
    """An upper bound that takes a thousandth of the time of a parser."""
    return text.count(",") + text.count("{") + text.count("[")


def parse_canonical(body: bytes) -> Json | None:
    """The object in a body that has exactly the form in which orjson writes it, as most bodies of API servers. Such a
    body has no duplicate key, and no number or character that parsers read differently: orjson would not have written
    it again. None for every other body, which takes five times as long."""
    containers = body.count(b"{") + body.count(b"[")
    if containers + body.count(b",") > MAX_VALUES:
        return None
    try:
        document = orjson.loads(body)
        written = orjson.dumps(document, option=orjson.OPT_STRICT_INTEGER)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    if not isinstance(document, dict) or written != body.rstrip(b"\n"):
        return None
    if containers > MAX_DEPTH:
        _check_depth(document)
    return document


def lone_surrogates(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of strings with half of a surrogate pair, and of objects with such a key."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from (path,) if _has_surrogate(key) else lone_surrogates(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from lone_surrogates(child, (*path, index))
    elif isinstance(value, str) and _has_surrogate(value):
        yield path


def quote(text: str) -> str:
    """The caller's text in a form for messages: short, and without control characters."""
    return json.dumps(text if len(text) <= 60 else text[:57] + "...")


def _decode(body: bytes) -> str:
    if body.startswith(BYTE_ORDER_MARK):
        raise InvalidJSON("the body starts with a byte order mark, which JSON does not allow")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJSON(f"the body is not UTF-8: byte {error.start} is {body[error.start]:#04x}") from None


def _object(pairs: list[tuple[str, Any]]) -> Json:
    document = dict(pairs)
    if len(document) != len(pairs):
        duplicate = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise InvalidJSON(f"duplicate key {quote(duplicate)} in one object")
    return document


def _constant(name: str) -> NoReturn:
    raise InvalidJSON(f"{name} is not a JSON number")


def _integer(digits: str) -> int:
    # Checks the length first, because the conversion of a million digits takes seconds.
    if len(digits) > 20 or int(digits) not in INT64:
        raise InvalidJSON(f"the number {quote(digits)} does not fit into 64 bits")
    return int(digits)


def _integer_or_float(digits: str) -> int | float:
    return _float(digits) if len(digits) > 20 or int(digits) not in INT64 else int(digits)


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise InvalidJSON(f"the number {quote(digits)} does not fit into a double")
    return number


def _check_depth(document: Json) -> None:
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise InvalidJSON(f"the document is nested deeper than {MAX_DEPTH} levels")


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _type_name(value: object) -> str:
    return {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}.get(
        type(value), "null"
    )
