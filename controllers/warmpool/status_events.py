"""Computes the events of a warm pool from a change of its status."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controllers.warmpool.evictions import BUDGET_FAILURE
from controllers.warmpool.reasons import WarmPoolReason as Reason
from poolhouse.api.kinds.metav1 import NOT_OBSERVED, Condition
from poolhouse.api.kinds.warmpool import WarmPoolStatus
from poolhouse.runtime.events import EventType


@dataclass(frozen=True)
class StatusEvent:
    type: EventType
    reason: Reason
    note: str


@dataclass(frozen=True)
class _Rule:
    """Emits an event when the condition changes to this status and, unless None, to this reason."""

    condition: str
    status: str
    condition_reason: Reason | None
    type: EventType
    event: Reason
    at_first: bool = True
    """Whether the rule also applies to the first status of a new pool."""


_RULES = (
    _Rule("Valid", "False", None, "Warning", Reason.INVALID_SPEC),
    _Rule("Degraded", "True", Reason.CIRCUIT_BREAKER_OPEN, "Warning", Reason.CIRCUIT_BREAKER_OPEN),
    _Rule("Degraded", "True", Reason.TOO_MANY_UNHEALTHY, "Warning", Reason.TOO_MANY_UNHEALTHY),
    _Rule("Degraded", "True", Reason.BACKEND_UNAVAILABLE, "Warning", Reason.BACKEND_UNAVAILABLE),
    _Rule("Degraded", "True", Reason.FAILED_STANDBY, "Warning", Reason.FAILED_STANDBY),
    _Rule("Available", "False", Reason.INSUFFICIENT_CAPACITY, "Warning", Reason.INSUFFICIENT_CAPACITY),
    _Rule("Default", "False", Reason.DEFAULT_CONFLICT, "Warning", Reason.DEFAULT_CONFLICT),
    _Rule(BUDGET_FAILURE, "True", Reason.FOREIGN_EVICTION_BUDGET, "Warning", Reason.FOREIGN_EVICTION_BUDGET),
    _Rule(BUDGET_FAILURE, "True", Reason.EVICTION_BUDGET_REFUSED, "Warning", Reason.EVICTION_BUDGET_REFUSED),
    _Rule("Autoscaling", "True", Reason.SCALE_IGNORED, "Warning", Reason.SCALE_IGNORED),
    _Rule("Autoscaling", "True", Reason.IDLE_CEILING, "Warning", Reason.IDLE_CEILING),
    _Rule("Autoscaling", "True", Reason.MAX_REPLICAS, "Warning", Reason.MAX_REPLICAS),
    _Rule("RolloutComplete", "False", Reason.UPDATING, "Normal", Reason.ROLLOUT_STARTED, at_first=False),
    _Rule("RolloutComplete", "False", Reason.PROGRESS_DEADLINE_EXCEEDED, "Warning", Reason.ROLLOUT_STALLED),
    _Rule("RolloutComplete", "True", None, "Normal", Reason.ROLLOUT_COMPLETE, at_first=False),
)


def status_events(before: WarmPoolStatus, after: WarmPoolStatus) -> Iterator[StatusEvent]:
    old, new = ({c.type: c for c in status.conditions} for status in (before, after))
    first = before.observed_generation in (None, NOT_OBSERVED)
    for rule in _RULES:
        condition = new.get(rule.condition)
        if condition and _applies(rule, condition, old.get(rule.condition)) and (rule.at_first or not first):
            yield StatusEvent(rule.type, rule.event, condition.message)
    closed = _degraded_by(Reason.CIRCUIT_BREAKER_OPEN, old) and not _degraded_by(Reason.CIRCUIT_BREAKER_OPEN, new)
    if closed and not _degraded_by(Reason.BACKEND_UNAVAILABLE, new):
        yield StatusEvent("Normal", Reason.CIRCUIT_BREAKER_CLOSED, "VMs start again")
    if before.available_replicas and not after.available_replicas:
        yield StatusEvent("Warning", Reason.POOL_EMPTY, "no VM is ready to be claimed")


def _applies(rule: _Rule, new: Condition, old: Condition | None) -> bool:
    if new.status != rule.status or rule.condition_reason not in (None, new.reason):
        return False
    return old is None or (old.status, old.reason) != (new.status, new.reason)


def _degraded_by(reason: Reason, conditions: Mapping[str, Condition]) -> bool:
    return "Degraded" in conditions and conditions["Degraded"].reason == reason
