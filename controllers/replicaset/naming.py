"""The names of a set's instances: `web-x7k2q`.

They look like those that the API server generates, but each is a function of the set and of a number. Who plans again
from an old store, or beside another leader, gives the same names again, and what would be one instance too many is
refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from itertools import count

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""no vowels and nothing that looks like another: no words come out, bad ones neither"""
LENGTH = 5
LONGEST_STEM = 63 - LENGTH - 1
"""a name is a host name as well"""


def free_names(set_uid: str, stem: str, taken: Collection[str], wanted: int) -> list[str]:
    """So many names of the set that nobody has."""
    names: dict[str, None] = {}
    for number in count():
        if len(names) >= wanted:
            break
        name = _name(set_uid, stem, number)
        if name not in taken:
            names[name] = None
    return list(names)


def base_name(name: str) -> str:
    """What comes before the generated part; empty where there is none."""
    stem, _, tail = name.rpartition("-")
    return stem if len(tail) == LENGTH else ""


def shortened(stem: str) -> str:
    return stem[:LONGEST_STEM].rstrip("-.")


def _name(set_uid: str, stem: str, number: int) -> str:
    value = int.from_bytes(hashlib.sha256(f"{set_uid}/{number}".encode()).digest()[:8])
    letters = []
    for _ in range(LENGTH):
        value, rest = divmod(value, len(LETTERS))
        letters.append(LETTERS[rest])
    return f"{stem}-{''.join(letters)}"
