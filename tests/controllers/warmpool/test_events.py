"""Events that follow from a change of the status."""

from __future__ import annotations

import pytest

from controllers.warmpool.events import status_events
from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.status import status
from kinds.warmpool import WarmPoolStatus
from tests.controllers.warmpool.builders import (
    NEW,
    NOW,
    OLD,
    a_snapshot,
    a_vm,
    a_vmi,
    ago,
)

FAILING_VM = {
    "vmi": a_vmi(start_failure="ErrImagePull", message="not found", phase="Scheduling", conditions=frozenset())
}


FULL = FailureBackoff(2, "InsufficientCapacity", "exceeded quota", ago(-5))


def event_reasons(before: WarmPoolSnapshot, after: WarmPoolSnapshot) -> list[str]:
    return [each.reason for each in status_events(status(before, NOW), status(after, NOW))]


COMPLETE = a_snapshot(1, a_vm("a"))
FAILING_POOL = a_snapshot(9, *(a_vm(f"b{n}", NEW, **FAILING_VM) for n in range(5)))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(COMPLETE, COMPLETE, [], id="no change"),
        pytest.param(COMPLETE, a_snapshot(1), ["PoolEmpty"], id="no VM available"),
        pytest.param(COMPLETE, FAILING_POOL, ["CircuitBreakerOpen", "PoolEmpty"], id="circuit breaker opens"),
        pytest.param(FAILING_POOL, COMPLETE, ["CircuitBreakerClosed"], id="circuit breaker closes"),
        pytest.param(COMPLETE, a_snapshot(1, a_vm("a", of=OLD)), ["RolloutStarted"], id="rollout starts"),
        pytest.param(a_snapshot(1, a_vm("a", of=OLD)), COMPLETE, ["RolloutComplete"], id="rollout completes"),
        pytest.param(a_snapshot(4), a_snapshot(4, failures=FULL), ["InsufficientCapacity"], id="unschedulable"),
    ],
)
def test_status_events(before: WarmPoolSnapshot, after: WarmPoolSnapshot, expected: list[str]) -> None:
    assert event_reasons(before, after) == expected


def test_the_first_status_causes_warnings_only() -> None:
    assert list(status_events(WarmPoolStatus(), status(COMPLETE, NOW))) == []
