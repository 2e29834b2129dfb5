"""Which template a machine was made from.

The hash is of what makes the machine: the template's spec and the placement that was drawn for it. Labels and
annotations don't roll a pool, neither do weights. It says which algorithm made it, so that a release that computes it
otherwise does not take every machine in the world for outdated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]

CURRENT = "v1"
_WEIGHTLESS = ("name", "weight")


def _v1(spec: Any, placement: Mapping[str, Any]) -> str:
    where = {key: value for key, value in placement.items() if key not in _WEIGHTLESS and value}
    text = json.dumps([spec, where], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


ALGORITHMS: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {"v1": _v1}


def template_hash(spec: Any, placement: Mapping[str, Any] | None = None) -> str:
    """Of a template's spec (or an EC2 template) and a placement as the API has it. A legal label value."""
    return f"{CURRENT}.{ALGORITHMS[CURRENT](spec, placement or {})}"


def made_from(label: str, spec: Any, placement: Mapping[str, Any] | None = None) -> bool:
    """Was a machine with this label made from them? One of an algorithm that we don't know was made by a newer release,
    which went away: it is taken for current, as rolling everything back is nobody's wish."""
    version, _, rest = label.partition(".")
    if not rest:
        return False
    algorithm = ALGORITHMS.get(version)
    return algorithm is None or algorithm(spec, placement or {}) == rest
