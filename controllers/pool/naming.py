"""Names of a pool's VMs: `NAME-1`, `NAME-2`, ... Gaps are filled first."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import count, islice

FIRST = 1

_NAME = re.compile(r"(.+)-([1-9][0-9]{0,9})")


def name_of(pool: str, ordinal: int) -> str:
    return f"{pool}-{ordinal}"


def parent_and_ordinal(name: str) -> tuple[str, int | None]:
    """`web-3` is (`web`, 3). `web-03` is no name that a pool gives, so it has no ordinal."""
    match = _NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, None)


def ordinal_of(pool: str, name: str) -> int | None:
    stem, ordinal = parent_and_ordinal(name)
    return ordinal if stem == pool else None


def has_revision(name: str, revision: str) -> str:
    """What there is to see of an update."""
    return f"{name}@{revision}"


def free_ordinals(taken: Collection[int], wanted: int) -> tuple[int, ...]:
    """The lowest ordinals that nobody has."""
    return tuple(islice((n for n in count(FIRST) if n not in taken), max(0, wanted)))
