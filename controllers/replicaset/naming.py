"""Names of a replica set's VMIs: `web-x7k2q`.

They look like names that the API server generates, but follow from the set's UID and a number. A controller that plans
again from an old store, or beside another leader, gives the same names, and the API server refuses the duplicates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from itertools import count

from controllers.shared.names import SUFFIX_CHARACTERS

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
