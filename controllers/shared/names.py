"""Names of VMs and VMIs: ordinals as in a StatefulSet, and generated suffixes as the API server makes them."""

from __future__ import annotations

import re

SUFFIX_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own alphabet for generated names: without vowels and look-alikes, no words come out."""

_ORDINAL_NAME = re.compile(r"(.+)-([1-9][0-9]{0,9})")


def parent_and_ordinal(name: str) -> tuple[str, int | None]:
    """`web-3` is (`web`, 3). `web-03` is not a name that a pool gives, so it has no ordinal."""
    match = _ORDINAL_NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, None)
