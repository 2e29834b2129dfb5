"""Changes of any JSON document, and of the bytes of one. All chance comes from the given generator."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

Path = tuple[str | int, ...]

WORDS = (
    *("", " ", "a", "A", "-", "_", ".", "..", "../x", "/etc/passwd", "\n", "\x00", "\x7f", "a\nb", "a" * 64, "a" * 254),
    *("true", "null", "0", "-1", "1.0", "1e3", "1Gi", "9e999", "0x10", "100%", "101%", "NaN", "é", "\u202e", "😀", "İ"),
    *("{{x}}", "$(id)", "<a/>", "]]>", "&amp;", "'", '"', "\\", "~0~1", "[0]", "a.b/c", "kubevirt.io/x", "x=y,z!=w"),
    *("0000:00:00.0", "0000:ff:1f.7", "52:54:00:00:00:01", "ff:ff:ff:ff:ff:ff", "q35", "pc-q35-7.2", "2026-02-30"),
)
NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 63, 64, 255, 256, 257, 4096, 4097, 65535, 65536, 2**31 - 1, 2**31, -(2**31)),
    *(2**32, 2**53, 2**63 - 1, -(2**63), 0.5, -0.0, 1.0, 3.0, 1e15, 1e300, 1e-300),
)
MAX_REPEATS = 300
MAX_BYTES = 400_000
"""limit on the size of a mutated document: larger ones only test the limit on bodies, which has its own target"""
_TOKENS = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"null", b"true", b"1e999", b"-", b"NaN", b"\\u0000", b"\\ud800"),
    *(b"\xff", b"\xef\xbb\xbf", b"\x00", b"9" * 30, b"[" * 200, b'{"a":' * 120, b"/**/", b"\\", b"'", b"\n" * 9),
)


def paths(value: Any, here: Path = ()) -> Iterator[Path]:
    """The paths of all values in a document, without its root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*here, key)
        yield from paths(inner, (*here, key))


def at_path(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def scalar(random: Random) -> Any:
    return random.choice((None, True, False, random.choice(NUMBERS), random.choice(NUMBERS), random.choice(WORDS)))


def mutate(random: Random, document: Any, others: list[Any]) -> Any:
    """A changed copy. Values are also taken from the other documents."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        found = list(paths(document))
        if not found:
            return document
        *parents, key = random.choice(found)
        _change(random, at_path(document, tuple(parents)), key, others)
    return document


def _change(random: Random, parent: Any, key: Any, others: list[Any]) -> None:
    match random.randrange(10):
        case 0 | 1 | 2:
            parent[key] = scalar(random)
        case 3:
            del parent[key]
        case 4:
            parent[key] = random.choice(([], {}, [parent[key]], {"name": parent[key]}, [[]], [None]))
        case 5 if isinstance(parent, list):
            parent.insert(random.randrange(len(parent) + 1), copy.deepcopy(parent[key]))
        case 5:
            name = random.choice((*WORDS, str(key)[:-1], f"{key}s", str(key).upper()))
            parent[name] = copy.deepcopy(parent[key])
        case 6 if isinstance(parent, list):
            parent[key:key] = [
                copy.deepcopy(parent[key]) for _ in range(random.randrange(MAX_REPEATS) if key < 9 else 1)
            ]
        case 6:
            parent[random.choice(WORDS)] = scalar(random)
        case 7 | 8 if others:
            other = random.choice(others)
            found = list(paths(other))
            parent[key] = copy.deepcopy(at_path(other, random.choice(found))) if found else scalar(random)
        case 9 if isinstance(parent[key], str):
            text = parent[key]
            where = random.randrange(len(text) + 1)
            parent[key] = text[:where] + random.choice(WORDS) + text[where + random.randrange(2) :]
        case _:
            parent[key] = scalar(random)


def encode(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def mutate_bytes(random: Random, body: bytes) -> bytes:
    for _ in range(random.choice((0, 1, 1, 2, 4, 16))):
        where = random.randrange(len(body) + 1)
        length = random.choice((0, 1, 1, 2, 8, 64))
        match random.randrange(5):
            case 0:
                new = bytes([random.randrange(256)])
            case 1:
                new = random.choice(_TOKENS)
            case 2:
                start = random.randrange(len(body) + 1)
                new = body[start : start + random.choice((1, 5, 40, 400))]
            case 3:
                new, length = b"", random.choice((1, 3, 1000))
            case _:
                new = body[where : where + length] * random.choice((2, 3, 50))
        body = body[:where] + new + body[where + length :]
    return body[:MAX_BYTES]
