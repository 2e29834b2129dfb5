"""Reads the containers' states in the status of a Pod."""

from collections.abc import Iterator, Mapping
from typing import Any


def waiting_containers(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the name of each waiting container, with the reason and the message of its kubelet or agent. A container
    without a message is starting, and is left out."""
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("message"):
            yield each["name"], f"{waiting.get('reason')}: {waiting['message']}"
