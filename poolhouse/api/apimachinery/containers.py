"""What the status of a Pod says about its containers."""

from collections.abc import Iterator, Mapping
from typing import Any


def waiting_containers(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of containers that wait, and why, as their kubelet or agent says. Without a message they just start."""
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("message"):
            yield each["name"], f"{waiting.get('reason')}: {waiting['message']}"
