"""Names of machines, and the placement that a name draws."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from itertools import count, islice

from kinds.warmpool import Placement

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""none of which makes a word"""
_LENGTH = 6


def unused_names(pool: str, seed: str, wanted: int, taken: Collection[str] = ()) -> tuple[str, ...]:
    """Names that nobody has. Another seed gives others: a name never comes back, because the disks of who had it before
    may still be there."""
    return tuple(islice((name for name in _names(pool, seed) if name not in taken), max(0, wanted)))


def draw_placement(pool_uid: str, name: str, placements: Collection[Placement]) -> str:
    """The placement of a machine of this name: by chance and by weight, and the same one whenever it is asked again."""
    weights = [(each.name, each.weight) for each in placements if each.weight > 0]
    if not weights:
        return ""
    lot = int.from_bytes(hashlib.sha256(f"{pool_uid}/{name}".encode()).digest()[:8]) % sum(w for _, w in weights)
    for placement, weight in weights:
        lot -= weight
        if lot < 0:
            return placement
    raise AssertionError("a lot is below the sum of all weights")


def _names(pool: str, seed: str) -> Iterator[str]:
    for number in count():
        digest = hashlib.sha256(f"{pool}/{seed}/{number}".encode()).digest()
        yield f"{pool}-{''.join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:_LENGTH])}"
