"""The bounded history of a pool's demand, and its text in the status."""

import base64
import json
import random
import zlib

import pytest

from controllers.warmpool.autoscaling.history import DAY, HOUR, SLOT_SECONDS, SLOTS, DemandHistory

MONDAY = 1_767_571_200.0  # 2026-01-05T00:00:00Z


def a_history(*claims: float, boot: float = 60.0) -> DemandHistory:
    history = DemandHistory()
    history.booted(boot)
    history.compete_within(boot)
    for time in claims:
        history.observe(time)
        history.arrived(time)
    return history


def busy_weeks(per_hour: float = 60.0, weeks: int = 2) -> DemandHistory:
    random_, time, times = random.Random(1), MONDAY, []
    while (time := time + random_.expovariate(per_hour / HOUR)) < MONDAY + weeks * 7 * DAY:
        times.append(time)
    return a_history(*times)


def test_the_text_has_the_whole_history_in_a_few_kb() -> None:
    history = busy_weeks()
    now = MONDAY + 14 * DAY
    text = history.encode(now)
    found = DemandHistory.decode(text)
    assert len(text) < 8000
    assert found.encode(now) == text
    for later in (now, now + HOUR):
        assert found.replicas(later, 0.01) == history.replicas(later, 0.01)
    assert [*found.replay()] == [*history.replay()]


def packed(state: object) -> str:
    return base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()


def changed(**fields: object) -> str:
    state = json.loads(zlib.decompress(base64.b64decode(busy_weeks(2, 1).encode(MONDAY + 8 * DAY))))
    return packed({**state, **fields})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64!",
        base64.b64encode(b"no zlib").decode(),
        packed([]),
        packed({"version": 1}),
        packed({"version": 2}),
        packed("x" * 10_000_000),
        changed(version=99),
        changed(rate=float("inf")),
        changed(rate=-1),
        changed(window=float("nan")),
        changed(window=float("inf")),
        changed(served=[]),
        base64.b64encode(zlib.compress(b"[" * 100_000)).decode(),
        changed(slots=[[1]]),
        changed(recent=[[0, 1]]),
        changed(idle=None),
    ],
)
def test_a_text_of_another_form_is_an_empty_history(text: str) -> None:
    assert DemandHistory.decode(text) == DemandHistory()


def test_a_forged_text_cannot_demand_endless_work() -> None:
    huge = 10**30
    found = DemandHistory.decode(changed(slots=[[1, huge, huge]], recent=[[0, huge, huge]]))
    assert len([*found.replay()]) <= 100_000
    assert found.replicas(MONDAY, 0.01) <= 200_000


def test_the_rate_is_that_of_recent_claims() -> None:
    history = a_history(*(MONDAY + each * 60 for each in range(600)))
    end = MONDAY + 600 * 60
    assert history.expected(end) == pytest.approx(1, rel=0.05)
    assert history.expected(end + 5 * HOUR) < 0.001


def test_a_time_before_the_last_claim_counts_as_its_time() -> None:
    history = a_history(MONDAY + 100, MONDAY + 50)
    assert history.rate == pytest.approx(2)
    assert history.rate_at == MONDAY + 100


def test_a_claim_that_is_recorded_late_is_in_the_slot_of_its_creation() -> None:
    history = a_history(MONDAY)
    history.observe(MONDAY + SLOT_SECONDS + 1)
    history.arrived(MONDAY + SLOT_SECONDS - 1)
    assert [slot.claims for slot in history.slots.values()] == [2]


def test_idle_hours_are_those_of_the_day() -> None:
    history = DemandHistory()
    history.waited(MONDAY + 22 * HOUR, 3)
    history.waited(MONDAY + 23 * HOUR, 3)
    assert history.idle_hours(MONDAY + 23 * HOUR) == 3
    history.waited(MONDAY + 25 * HOUR, 1)
    assert history.idle_hours(MONDAY + 25 * HOUR) == 3, "only the hour after midnight"
    assert history.idle_hours(MONDAY + 49 * HOUR) == 0


def test_another_boot_time_starts_the_counts_anew_and_a_similar_one_keeps_them() -> None:
    history = a_history(*(MONDAY + each for each in range(50)), boot=60)
    counts = history.table.counts
    history.compete_within(70)
    assert (history.window_seconds, history.table.counts) == (60, counts)
    history.compete_within(90)
    assert (history.window_seconds, history.table.counts) == (90, {})


def test_late_claims_make_the_pool_larger_and_claims_in_time_smaller() -> None:
    sizes = []
    for late in (False, True):
        history = busy_weeks(weeks=1)
        for each in range(2000):
            history.served(late=late and each % 20 == 0)
        sizes.append(history.replicas(MONDAY + 7 * DAY, 0.05))
    assert sizes[0] <= sizes[1]


def test_the_replay_keeps_counts_and_bursts() -> None:
    claims = [MONDAY + 5000 + each / 10 for each in range(20)] + [MONDAY + 5900 + 60 * each for each in range(5)]
    replayed = [*a_history(*claims).replay()]
    assert len(replayed) == 25
    assert replayed == sorted(replayed)
    assert max(sum(start <= each < start + 60 for each in replayed) for start in replayed) >= 20
    assert min(replayed) >= MONDAY + 4500


def test_slots_are_those_of_the_last_week() -> None:
    history = a_history(*(MONDAY + day * DAY for day in range(30)))
    assert len(history.slots) == 7
    assert min(history.slots) > (MONDAY + 29 * DAY) // SLOT_SECONDS - SLOTS
