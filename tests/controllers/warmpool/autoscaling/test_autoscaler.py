"""What the autoscaling writes into the status, and what a new process continues with."""

import math
from datetime import timedelta
from itertools import pairwise
from typing import Any

from controllers.warmpool.autoscaling.autoscaler import SAVE_SECONDS, ClaimEvents, PoolAutoscaler
from controllers.warmpool.autoscaling.history import DemandHistory
from controllers.warmpool.warm_pool import WarmPool
from poolhouse.api.kinds.warmpool import WarmPoolStatus
from tests.controllers.warmpool.builders import NOW, a_pool

SPEC = {"maxReplicas": 9, "target": {"waitSeconds": 1}}
NOTHING = ClaimEvents()


def autoscaled(replicas: int = 1, **given: Any) -> WarmPool:
    return a_pool(replicas, autoscaling={**SPEC, **given})


def a_new_one() -> PoolAutoscaler:
    return PoolAutoscaler.from_status(WarmPoolStatus())


def counted(history: DemandHistory) -> int:
    return sum(slot.claims for slot in history.slots.values())


def claims(*seconds_ago: float) -> ClaimEvents:
    return ClaimEvents(tuple(NOW.timestamp() - each for each in seconds_ago))


def test_a_pool_without_autoscaling_keeps_its_history_only() -> None:
    one = a_new_one()
    one.booted(30)
    one.update(a_pool(), claims(5), 1, 0, NOW)
    assert (one.status, one.decision) == (None, None)
    assert counted(DemandHistory.decode(one.saved)) == 1


def test_nothing_is_written_before_the_first_claim_or_boot() -> None:
    one = a_new_one()
    one.update(a_pool(), NOTHING, 1, 0, NOW)
    assert one.saved == ""


def test_the_history_is_encoded_at_most_every_five_minutes_and_only_after_a_claim() -> None:
    one, texts = a_new_one(), []
    one.booted(30)
    for second in range(0, 3600, 10):
        busy = second < 1800
        now = NOW + timedelta(seconds=second)
        one.update(autoscaled(), ClaimEvents((now.timestamp(),) if busy else ()), 1, 0, now)
        texts.append(one.saved)
    assert len(set(texts[:180])) <= 1800 / SAVE_SECONDS + 1
    assert len(set(texts[220:])) == 1


def test_the_boot_time_of_a_pool_without_claims_is_written() -> None:
    one = a_new_one()
    one.booted(30)
    one.update(a_pool(), NOTHING, 1, 0, NOW)
    assert DemandHistory.decode(one.saved).boot_seconds == 30
    for minute, boot, written in ((1, 50, 30), (6, 30.1, 31.8), (12, 31, 31.8), (18, 100, 38.6)):
        one.booted(boot)
        one.update(a_pool(), NOTHING, 1, 0, NOW + timedelta(minutes=minute))
        assert DemandHistory.decode(one.saved).boot_seconds == written


def test_the_first_claim_is_written_soon_after_the_first_boot() -> None:
    one = a_new_one()
    one.booted(30)
    one.update(a_pool(), NOTHING, 1, 0, NOW)
    one.update(a_pool(), claims(-4), 1, 0, NOW + timedelta(seconds=5))
    assert counted(DemandHistory.decode(one.saved)) == 1
    one.update(a_pool(), claims(-6), 1, 0, NOW + timedelta(seconds=7))
    assert counted(DemandHistory.decode(one.saved)) == 1


def test_the_status_does_not_change_while_nothing_happens() -> None:
    one = a_new_one()
    one.booted(30)
    one.update(autoscaled(), claims(*range(40)), 3, 1, NOW)
    seen = []
    for hour in range(2, 24 * 7):
        one.update(autoscaled(), NOTHING, 1, 0, NOW + timedelta(hours=hour))
        seen.append(one.status)
    sizes = [each.desired_replicas for each in seen if each]
    written = [each.model_dump_json() for each in seen if each]
    changes = [sum(a != b for a, b in pairwise(found)) for found in (written, sizes)]
    assert changes[0] == changes[1] <= 4, "a status is written for a new size only"


def test_a_new_process_continues_with_size_and_history_and_counts_no_claim_twice() -> None:
    one, pool = a_new_one(), autoscaled()
    one.booted(30)
    one.update(pool, claims(30, 20, 10), 3, 1, NOW)
    after = NOW + timedelta(seconds=20)
    status = WarmPoolStatus(demand_history=one.saved, autoscaling=one.status.model_copy(update={"desired_replicas": 7}))
    other = PoolAutoscaler.from_status(status)
    # All claims that still exist are seen again, with one that came after the history was written.
    seen = ClaimEvents((*claims(30, 20, 10).arrived, after.timestamp() - 1))
    other.update(a_pool(1, autoscaling=SPEC, status=status.json()), seen, 3, 1, after)
    assert counted(other.history) == 4
    assert (other.decision.replicas, str(other.decision.reason)) == (7, "ScaleDownDelayed")


def test_a_leader_that_leads_again_counts_no_claim_twice() -> None:
    """It keeps its memory, and sees all claims again."""
    one = a_new_one()
    one.booted(30)
    one.update(autoscaled(), claims(30, 10), 3, 1, NOW)
    one.begin()
    one.update(autoscaled(), claims(30, 10, 0), 3, 1, NOW)
    assert counted(one.history) == 3


def test_a_former_leader_continues_with_the_history_of_the_other() -> None:
    one, other = a_new_one(), a_new_one()
    for each in (one, other):
        each.booted(30)
        each.update(autoscaled(), claims(5), 1, 0, NOW)
    later = NOW + timedelta(minutes=10)
    other.update(autoscaled(), ClaimEvents((later.timestamp(),)), 1, 0, later)
    one.update(a_pool(1, autoscaling=SPEC, status={"demandHistory": other.saved}), NOTHING, 1, 0, later)
    assert counted(one.history) == 2
    one.update(a_pool(1, autoscaling=SPEC, status={"demandHistory": "forged"}), NOTHING, 1, 0, later)
    assert counted(one.history) == 2


def test_late_claims_are_those_beyond_the_target() -> None:
    one = a_new_one()
    one.booted(30)
    one.update(autoscaled(), ClaimEvents(wait_seconds=(0.2, 0.9, 1.1, math.inf)), 1, 0, NOW)
    assert round(one.history.late_share, 3) == 0.5
    assert one.status.late_claims_percent == "50.0"
