"""Generates names of new VMs, and draws a placement for a name."""

import hashlib
from collections.abc import Collection, Iterator
from itertools import count, islice

from controllers.shared.names import SUFFIX_CHARACTERS
from poolhouse.api.kinds.warmpool import Placement

_LENGTH = 6


def unused_names(pool: str, seed: str, wanted: int, used: Collection[str] = ()) -> tuple[str, ...]:
    """The caller gives a new seed each time, so that no name returns: disks of a deleted VM may still exist."""
    return tuple(islice((name for name in _names(pool, seed) if name not in used), max(0, wanted)))


def draw_placement(pool_uid: str, name: str, placements: Collection[Placement]) -> str:
    """Draws a placement by weight. The same name always gets the same placement."""
    weights = [(each.name, each.weight) for each in placements if each.weight > 0]
    if not weights:
        return ""
    draw = int.from_bytes(hashlib.sha256(f"{pool_uid}/{name}".encode()).digest()[:8]) % sum(w for _, w in weights)
    for placement, weight in weights:
        draw -= weight
        if draw < 0:
            return placement
    raise AssertionError("the draw is below the sum of all weights")


def _names(pool: str, seed: str) -> Iterator[str]:
    for number in count():
        digest = hashlib.sha256(f"{pool}/{seed}/{number}".encode()).digest()
        suffix = "".join(SUFFIX_CHARACTERS[byte % len(SUFFIX_CHARACTERS)] for byte in digest[:_LENGTH])
        yield f"{pool}-{suffix}"
