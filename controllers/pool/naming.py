"""Names of a pool's VMs: `NAME-1`, `NAME-2`, ... Gaps are filled first."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count, islice

from controllers.shared.names import parent_and_ordinal

FIRST_ORDINAL = 1


def name_of(pool: str, ordinal: int) -> str:
    return f"{pool}-{ordinal}"


def ordinal_of(pool: str, name: str) -> int | None:
    parent, ordinal = parent_and_ordinal(name)
    return ordinal if parent == pool else None


def has_revision(name: str, revision: str) -> str:
    """Identifies the update of a VM in expectations: the store will show this VM with this revision."""
    return f"{name}@{revision}"


def free_ordinals(taken: Collection[int], wanted: int) -> tuple[int, ...]:
    """The lowest ordinals that are not taken."""
    return tuple(islice((n for n in count(FIRST_ORDINAL) if n not in taken), max(0, wanted)))
