"""What a hypervisor says about one VMI's domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["unknown", "absent", "starting", "running", "paused", "off", "crashed"]


@dataclass(frozen=True)
class Domain:
    state: State = "absent"
    """unknown: it cannot be seen now. off: the guest ended by itself. A domain that is off or crashed still has to be
    cleared away."""
    node: str = ""
    reason: str = ""
    """why it is off, or has not come up"""
    trouble: str = ""
    """what keeps it from starting, as KubeVirt would say it: Unschedulable, ErrImagePull"""
    agent: bool = False
    change_seconds: float | None = None
    """when it will be different, if that is known"""

    @property
    def alive(self) -> bool:
        return self.state in ("starting", "running", "paused")


ABSENT = Domain()
