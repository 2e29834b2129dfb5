"""Sets an object aside for a growing time whose plan is too expensive, while others go on."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Self, TypeVar

from controllers.shared.conditions import merge
from controllers.shared.planner import PlanTooExpensive
from controllers.shared.readiness import Readiness
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.events import ObjectMeta

PAUSE = Backoff(base_seconds=30, cap_seconds=600)
CHANGED_SECONDS = 25.0
"""Pause of an object whose spec has changed since. It keeps the share of an object that somebody changes all the time
below a fifth of a processor."""

REASON = "PlanTooExpensive"


class Status(Protocol):
    @property
    def conditions(self) -> tuple[Condition, ...]: ...

    def model_copy(self, *, update: Mapping[str, Any]) -> Self: ...


S = TypeVar("S", bound=Status)
S_co = TypeVar("S_co", bound=Status, covariant=True)


class SetView(ObjectMeta, Protocol[S_co]):
    """The part of a set's view that is needed here."""

    @property
    def generation(self) -> int: ...
    @property
    def status(self) -> S_co: ...


@dataclass(frozen=True)
class SetAside:
    """The last of the plans of an object that were too expensive, one after another."""

    generation: int
    at: float
    """time of the plan, by the controller's clock"""
    times: int = 1

    def seconds_left(self, generation: int, now: float) -> float:
        """The rest of the pause, or 0."""
        pause = PAUSE.delay(self.times)
        if generation != self.generation:
            pause = min(pause, CHANGED_SECONDS)
        return max(0.0, self.at + pause - now)


def set_aside_status(status: S, message: str, *, generation: int, now: datetime) -> S:
    """The last status, which says that there was no plan."""
    conditions = Readiness("Reconciling", REASON, message).conditions
    found = merge(conditions, status.conditions, generation=generation, now=now)
    return status.model_copy(update={"observed_generation": generation, "conditions": found})


def describe(error: PlanTooExpensive, kind: str, has: str) -> str:
    """The message of the condition. `has` says what the object has much of."""
    return (
        f"a plan of this {kind} {error}: it has {has}. Nothing happens to its VMs until a plan fits, which is tried"
        " after growing pauses: make it smaller, or its spec simpler"
    )
