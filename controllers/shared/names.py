"""Names of VMs and VMIs: ordinals as in a StatefulSet, and suffixes as in names that the API server generates.

A pool's VMs are `web-1`, `web-2`, ... A replica set's VMIs have names such as `web-x7k2q`, which depend only on the
set's UID and a number. A controller that plans from a stale store, or beside another leader, therefore generates the
same names. The API server refuses the duplicates.
"""

import hashlib
import re
from collections.abc import Collection
from itertools import count, islice

SUFFIX_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for generated names. Without vowels, the names contain no words."""

_ORDINAL_NAME = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")


def parent_and_ordinal(name: str) -> tuple[str, int | None]:
    """`web-3` is (`web`, 3). `web-03` has no ordinal, because no pool generates this name."""
    match = _ORDINAL_NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, None)


FIRST_ORDINAL = 1
"""Pools that were imported from KubeVirt begin at 0."""


MAX_NAME = 63
"""A VM's name is also a host name. KubeVirt would cut a longer one, to that of another VM."""


def name_of(pool: str, ordinal: int) -> str:
    return f"{pool}-{ordinal}"


def ordinal_of(pool: str, name: str) -> int | None:
    parent, ordinal = parent_and_ordinal(name)
    return ordinal if parent == pool else None


def has_revision(name: str, revision: str) -> str:
    """The key of a VM's update in expectations, which the store meets when it shows the VM with this revision."""
    return f"{name}@{revision}"


def free_ordinals(taken: Collection[int], wanted: int, first: int = FIRST_ORDINAL) -> tuple[int, ...]:
    """The lowest ordinals from `first` on that are not in `taken`."""
    return tuple(islice((n for n in count(first) if n not in taken), max(0, wanted)))


LENGTH = 5
MAX_BASE_NAME = 63 - LENGTH - 1
"""A VMI name is also a host name, with at most 63 characters."""


def free_names(set_uid: str, base: str, taken: Collection[str], wanted: int) -> list[str]:
    """The first names of the set that are not in `taken`."""
    names: dict[str, None] = {}
    for number in count():
        if len(names) >= wanted:
            break
        name = _name(set_uid, base, number)
        if name not in taken:
            names[name] = None
    return list(names)


def base_name(name: str) -> str:
    """The part before the generated suffix, or an empty string."""
    base, _, suffix = name.rpartition("-")
    return base if len(suffix) == LENGTH else ""


def truncated(base: str) -> str:
    return base[:MAX_BASE_NAME].rstrip("-.")


def _name(set_uid: str, base: str, number: int) -> str:
    value = int.from_bytes(hashlib.sha256(f"{set_uid}/{number}".encode()).digest()[:8])
    suffix = ""
    for _ in range(LENGTH):
        value, rest = divmod(value, len(SUFFIX_CHARACTERS))
        suffix += SUFFIX_CHARACTERS[rest]
    return f"{base}-{suffix}"
