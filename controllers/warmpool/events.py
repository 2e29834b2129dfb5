"""What a change of a pool's status means for people: an Event each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from kinds.metav1 import Condition
from kinds.warmpool import WarmPoolStatus


@dataclass(frozen=True)
class StatusEvent:
    type: Literal["Normal", "Warning"]
    reason: str
    note: str


def status_events(before: WarmPoolStatus, after: WarmPoolStatus) -> Iterator[StatusEvent]:
    """What is new in the later one. The first status of a pool says only what is wrong."""
    old = {c.type: c for c in before.conditions}
    new = {c.type: c for c in after.conditions}
    first = before.observed_generation is None

    def became(kind: str, status: str, reason: str | None = None) -> Condition | None:
        now, was = new.get(kind), old.get(kind)
        if now is None or now.status != status or (reason and now.reason != reason):
            return None
        return None if was is not None and (was.status, was.reason) == (now.status, now.reason) else now

    if found := became("Valid", "False"):
        yield StatusEvent("Warning", "InvalidSpec", found.message)
    if found := became("Degraded", "True", "BreakerOpen"):
        yield StatusEvent("Warning", "BreakerOpen", found.message)
    if _is_open(old) and not _is_open(new) and not became("Degraded", "True", "MachinesUnseen"):
        yield StatusEvent("Normal", "BreakerClosed", "machines start again")
    if found := became("Degraded", "True", "MassFailure"):
        yield StatusEvent("Warning", "MassFailure", found.message)
    if found := became("Degraded", "True", "MachinesUnseen"):
        yield StatusEvent("Warning", "MachinesUnseen", found.message)
    if found := became("Available", "False", "InsufficientCapacity"):
        yield StatusEvent("Warning", "CapacityExhausted", found.message)
    if before.available_replicas and not after.available_replicas:
        yield StatusEvent("Warning", "PoolEmpty", "no machine is ready to be claimed")
    if found := became("Default", "False", "DefaultConflict"):
        yield StatusEvent("Warning", "DefaultConflict", found.message)
    if (found := became("RolloutComplete", "False", "RollingOut")) and not first:
        yield StatusEvent("Normal", "RolloutStarted", found.message)
    if found := became("RolloutComplete", "False", "ProgressDeadlineExceeded"):
        yield StatusEvent("Warning", "RolloutStalled", found.message)
    if (found := became("RolloutComplete", "True")) and not first:
        yield StatusEvent("Normal", "RolloutComplete", found.message)


def _is_open(conditions: Mapping[str, Condition]) -> bool:
    return "Degraded" in conditions and conditions["Degraded"].reason == "BreakerOpen"
