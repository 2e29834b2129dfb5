"""Which of our kinds a cluster is without: switched off in the chart, or KubeVirt's own there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kinds import KINDS
from kinds.kind import Kind

OFF = "POOLHOUSE_KINDS_OFF"
"""plurals, separated by commas"""


def off(environment: Mapping[str, str], kinds: Iterable[Kind] = KINDS) -> frozenset[str]:
    """Raises ValueError with a sentence that names the variable."""
    found = frozenset(name.strip() for name in environment.get(OFF, "").split(",") if name.strip())
    known = sorted(kind.plural for kind in kinds)
    if unknown := sorted(found - set(known)):
        raise ValueError(f"{OFF}: there is no {unknown[0]}; there are {', '.join(known)}")
    return found
