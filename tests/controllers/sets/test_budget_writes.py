"""Refused writes of a PodDisruptionBudget: when they are repeated, and what users read."""

from __future__ import annotations

import pytest

from controllers.sets.budget_writes import RefusedWrites, without_refusal
from controllers.sets.eviction_budgets import Refusal
from controllers.sets.write_batches import Failure, Outcome
from poolhouse.runtime.errors import Forbidden, Throttled

DENIED = Forbidden("the policy `quiet`\n  denied\tthe\x1b[2Jrequest", status=403)
REFUSED = Outcome(Failure("FailedSetEvictionBudget", "x"), retry=True, not_done=("set",), error=DENIED)
DONE = Outcome(done=("set",))


def after(*outcomes: Outcome) -> RefusedWrites:
    """After plans whose writes ended so, each at the end of the pause before."""
    found = RefusedWrites()
    for outcome in outcomes:
        clock = found.retry_at
        found.follow("u", found.seen(clock), outcome, clock)
    return found


def test_the_pause_grows_to_five_minutes() -> None:
    pauses, found, clock = list[float](), RefusedWrites(), 0.0
    for _ in range(12):
        found.follow("u", found.seen(clock), REFUSED, clock)
        pauses.append(found.retry_at - clock)
        clock = found.retry_at
    assert pauses[:8] == sorted(pauses[:8])
    assert pauses[0] <= 1
    assert 225 <= pauses[-1] <= 300


def test_a_busy_server_is_asked_no_earlier_than_it_wants() -> None:
    busy = Outcome(retry=True, error=Throttled("busy", status=429, retry_after_seconds=60.0))
    assert after(busy).retry_at == 60


@pytest.mark.parametrize(
    ("found", "refusal"),
    [
        pytest.param(after(), None, id="nothing was written"),
        pytest.param(after(DONE), None, id="nothing was refused"),
        pytest.param(after(REFUSED, DONE), None, id="the next write was accepted"),
        pytest.param(after(REFUSED, Outcome()), None, id="nothing is left to write"),
        pytest.param(after(REFUSED, Outcome(retry=True)), None, id="the budget has changed meanwhile"),
        pytest.param(
            after(REFUSED), Refusal("the policy `quiet` denied the\\x1b[2Jrequest"), id="the message has one line"
        ),
        pytest.param(after(Outcome(retry=True, error=TimeoutError())), Refusal("no answer in time"), id="no answer"),
    ],
)
def test_what_the_next_plan_knows(found: RefusedWrites, refusal: Refusal | None) -> None:
    assert found.seen(found.retry_at) == refusal


def test_a_plan_within_the_pause_forgets_no_refusal() -> None:
    found = after(REFUSED)
    before = found.seen(0.0)
    assert before.wait_seconds > 0
    found.follow("u", before, Outcome(), found.retry_at + 1)  # the plan took longer than the pause
    assert found.seen(found.retry_at) is not None


def test_a_refusal_is_no_failure_of_the_set() -> None:
    assert without_refusal(REFUSED) == Outcome(not_done=("set",))
    passing = Outcome(retry=True, not_done=("set",))
    assert without_refusal(passing) == passing, "the next plan uses a new snapshot at once"
