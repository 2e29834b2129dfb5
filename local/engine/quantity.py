"""Kubernetes' quantities, as whole bytes."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

_SCALES = {suffix: 10 ** (3 * power) for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))} | {
    f"{suffix}i": 1024**power for power, suffix in enumerate(("K", "M", "G", "T", "P", "E"), 1)
}
_FORM = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(m|k|[KMGTPE]i?|)$")


def bytes_of(text: str) -> int | None:
    """None for what is no quantity."""
    found = _FORM.match(text.strip())
    if found is None or found[2] == "K":
        return None
    scale = Decimal("0.001") if found[2] == "m" else Decimal(_SCALES[found[2]])
    return int((Decimal(found[1]) * scale).to_integral_value(ROUND_CEILING))
