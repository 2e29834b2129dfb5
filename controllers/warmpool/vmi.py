"""What is kept of a VirtualMachineInstance of a warm pool: the run of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

PAUSED_BY_USER = "PausedByUser"
"""how KubeVirt says that it was asked to pause; a guest may also be paused because its disk fails"""


@dataclass(frozen=True, slots=True)
class VMI:
    namespace: str
    name: str
    uid: str
    owner: str = ""
    """UID of its VM"""
    phase: str = ""
    holds: frozenset[str] = frozenset()
    """conditions that are True"""
    paused: str = ""
    """why it is paused"""
    trouble: str = ""
    """why it can't be started, in KubeVirt's word: Unschedulable, ErrImagePull, ..."""
    message: str = ""
    """the same in a sentence"""
    node: str = ""
    addresses: tuple[str, ...] = ()
    migrating: bool = False
    deleting: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def ready(self) -> bool:
        return "Ready" in self.holds

    @property
    def agent(self) -> bool:
        return "AgentConnected" in self.holds

    @property
    def running(self) -> bool:
        return self.phase == "Running" and not self.deleting


def parse_vmi(document: Json) -> VMI:
    metadata, status = document["metadata"], document.get("status") or {}
    owner: Json = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    conditions: dict[str, Json] = {c.get("type", ""): c for c in status.get("conditions") or ()}
    holds = frozenset(kind for kind, c in conditions.items() if c.get("status") == "True")
    trouble, message = _trouble(conditions)
    moving = status.get("migrationState") or {}
    interfaces = status.get("interfaces") or ()
    return VMI(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        owner=owner.get("uid", ""),
        phase=status.get("phase") or "",
        holds=holds,
        paused=(conditions["Paused"].get("reason") or "Paused") if "Paused" in holds else "",
        trouble=trouble,
        message=message,
        node=status.get("nodeName") or "",
        addresses=tuple(each["ipAddress"] for each in interfaces if each.get("ipAddress")),
        migrating=bool(moving) and not (moving.get("completed") or moving.get("failed")),
        deleting=metadata.get("deletionTimestamp") is not None,
    )


def _trouble(conditions: dict[str, Json]) -> tuple[str, str]:
    """A gated or unschedulable pod says so in PodScheduled, a missing image or disk in Synchronized."""
    for kind in ("PodScheduled", "Synchronized"):
        found = conditions.get(kind) or {}
        if found.get("status") == "False" and found.get("reason"):
            return found["reason"], found.get("message") or ""
    return "", ""
