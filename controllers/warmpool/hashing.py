"""Hashes of templates: which template a VM was made from.

The hash covers the template's spec and the VM's placement. A change of labels, annotations or weights does not start a
rollout. The hash names its algorithm: a release with another algorithm must not take all VMs for outdated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

CURRENT = "v1"
_NOT_HASHED = ("name", "weight")


def _v1(spec: Any, placement: Mapping[str, Any]) -> str:
    where = {key: value for key, value in placement.items() if key not in _NOT_HASHED and value}
    text = json.dumps([spec, where], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


ALGORITHMS: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {"v1": _v1}


def template_hash(spec: Any, placement: Mapping[str, Any] | None = None) -> str:
    """A valid label value. `spec` is that of a VM template, or an EC2 template."""
    return f"{CURRENT}.{ALGORITHMS[CURRENT](spec, placement or {})}"


def made_from(label: str, spec: Any, placement: Mapping[str, Any] | None = None) -> bool:
    """Whether the VM with this label was made from the spec and placement. A VM of an unknown algorithm counts as
    current: a newer release made it before a downgrade, and the downgrade must not replace all VMs."""
    version, _, rest = label.partition(".")
    if not rest:
        return False
    algorithm = ALGORITHMS.get(version)
    return algorithm is None or algorithm(spec, placement or {}) == rest
