"""What is kept of a Node: whether machines on it may be given away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kinds.meta import KUBEVIRT_DRAIN_TAINT

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    ready: bool = True
    """its kubelet answers"""
    leaving: bool = False
    """it is cordoned or being drained: what is on it will have to go"""

    @property
    def key(self) -> tuple[str, str]:
        return "", self.name


def parse_node(document: Json) -> Node:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    # A node that has said nothing yet is no reason to take machines from it: there can be none on it.
    ready = next((c.get("status") for c in status.get("conditions") or () if c.get("type") == "Ready"), "True")
    drained = any(taint.get("key") == KUBEVIRT_DRAIN_TAINT for taint in spec.get("taints") or ())
    return Node(document["metadata"]["name"], ready == "True", bool(spec.get("unschedulable")) or drained)
