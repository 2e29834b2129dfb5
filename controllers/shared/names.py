"""Names of VMs and VMIs: ordinals as in a StatefulSet, and generated suffixes as the API server makes them.

A pool's VMs are `web-1`, `web-2`, ... A replica set's VMIs (`web-x7k2q`) look like names that the API server generates,
but follow from the set's UID and a number. A controller that plans again from an old store, or beside another leader,
gives the same names, and the API server refuses the duplicates.
"""

import hashlib
import re
from collections.abc import Collection
from itertools import count, islice

SUFFIX_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own alphabet for generated names: without vowels and look-alikes, no words come out."""

_ORDINAL_NAME = re.compile(r"(.+)-([1-9][0-9]{0,9})")


def parent_and_ordinal(name: str) -> tuple[str, int | None]:
    """`web-3` is (`web`, 3). `web-03` is not a name that a pool gives, so it has no ordinal."""
    match = _ORDINAL_NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, None)


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


LENGTH = 5
MAX_BASE_NAME = 63 - LENGTH - 1
"""A name is a host name as well."""


def free_names(set_uid: str, base: str, taken: Collection[str], wanted: int) -> list[str]:
    """The first names of the set that are not taken."""
    names: dict[str, None] = {}
    for number in count():
        if len(names) >= wanted:
            break
        name = _name(set_uid, base, number)
        if name not in taken:
            names[name] = None
    return list(names)


def base_name(name: str) -> str:
    """The part before the generated suffix; empty without one."""
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
