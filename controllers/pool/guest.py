"""What is kept of a VirtualMachineInstance: the run of a VM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kinds import meta

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Guest:
    namespace: str
    name: str
    uid: str
    owner: str = ""
    """UID of its VM"""
    revision: str = ""
    """label of the template's revision that it was started from"""
    deleting: bool = False
    phase: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def guest(document: Json) -> Guest:
    metadata = document["metadata"]
    owner: Json = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    return Guest(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        owner=owner.get("uid", ""),
        revision=(metadata.get("labels") or {}).get(meta.REVISION, ""),
        deleting=metadata.get("deletionTimestamp") is not None,
        phase=(document.get("status") or {}).get("phase") or "",
    )
