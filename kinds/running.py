"""When KubeVirt runs a VM, as its spec says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def run_strategy(spec: Mapping[str, Any]) -> str:
    """`running` is the older word for two of the strategies."""
    return str(spec.get("runStrategy") or ("Always" if spec.get("running") else "Halted"))
