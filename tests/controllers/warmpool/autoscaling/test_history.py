"""The bounded history of a pool's demand, and its text in the status."""

import base64
import json
import random
import zlib

import pytest

from controllers.warmpool.autoscaling.history import DAY, HOUR, SLOT_SECONDS, SLOTS, DemandHistory

MONDAY = 1_767_571_200.0  # 2026-01-05T00:00:00Z


def a_history(*claims: float, boot: float = 60.0, time_zone: str = "UTC") -> DemandHistory:
    history = DemandHistory(time_zone=time_zone)
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
        assert found.replicas(later, 0.01, with_forecast=True) == history.replicas(later, 0.01, with_forecast=True)
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
        changed(zone="../../etc/passwd"),
        changed(slots=[[1]]),
        changed(recent=[[0, 1]]),
        changed(idle=None),
    ],
)
def test_a_text_of_another_form_is_an_empty_history(text: str) -> None:
    assert DemandHistory.decode(text) == DemandHistory()


def test_a_forged_text_cannot_demand_endless_work() -> None:
    huge = 10**30
    found = DemandHistory.decode(changed(slots=[[1, huge, huge]], recent=[[0, huge, huge]], forecast=[]))
    assert len([*found.replay()]) <= 100_000
    assert found.replicas(MONDAY, 0.01, with_forecast=False) <= 200_000


def test_the_rate_is_that_of_recent_claims() -> None:
    history = a_history(*(MONDAY + each * 60 for each in range(600)))
    end = MONDAY + 600 * 60
    assert history.expected(end, with_forecast=False) == pytest.approx(1, rel=0.05)
    assert history.expected(end + 5 * HOUR, with_forecast=False) < 0.001


def test_the_forecast_is_that_of_the_same_hour_of_the_week() -> None:
    claims = [MONDAY + day * DAY + 8 * HOUR + each for day in (0, 7) for each in range(30)]
    history = a_history(MONDAY, *claims, MONDAY + 14 * DAY)
    assert history.forecast(MONDAY + 14 * DAY + 8.5 * HOUR) == 30
    assert history.forecast(MONDAY + 15 * DAY + 8.5 * HOUR) == 0
    ahead = MONDAY + 14 * DAY + 8 * HOUR - 90
    assert history.expected(ahead, with_forecast=True) == pytest.approx(0.5)
    assert history.expected(ahead, with_forecast=False) < 0.01


def test_until_a_week_is_known_other_days_stand_in() -> None:
    history = a_history(MONDAY, *(MONDAY + 8 * HOUR + each for each in range(30)), MONDAY + DAY)
    assert history.forecast(MONDAY + DAY + 8 * HOUR) == 30


def test_the_newest_week_counts_half() -> None:
    history = a_history(
        MONDAY, MONDAY + HOUR, MONDAY + 7 * DAY + HOUR + 1, MONDAY + 7 * DAY + HOUR + 2, MONDAY + 8 * DAY
    )
    assert history.forecast(MONDAY + 14 * DAY + HOUR) == 1.5


def test_hours_are_those_of_the_time_zone_through_summer_time() -> None:
    friday, monday = 1_774_594_800.0, 1_774_850_400.0  # 8 o'clock in Berlin on 2026-03-27 and, after the change, 03-30
    history = a_history(friday - HOUR, *(friday + each for each in range(20)), friday + DAY, time_zone="Europe/Berlin")
    assert history.forecast(monday) == 20
    assert history.forecast(monday + HOUR) == 0


def test_another_time_zone_moves_the_known_hours() -> None:
    history = a_history(MONDAY, *(MONDAY + 8 * HOUR + each for each in range(20)), MONDAY + DAY)
    history.use_time_zone("Asia/Tokyo")
    assert history.forecast(MONDAY + 7 * DAY + 8 * HOUR) == 20
    assert DemandHistory.decode(history.encode(MONDAY + DAY)).time_zone == "Asia/Tokyo"


def test_a_time_before_the_last_claim_counts_as_its_time() -> None:
    history = a_history(MONDAY + 100, MONDAY + 50)
    assert history.rate == pytest.approx(2)
    assert history.rate_at == MONDAY + 100


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
    counts = history.recent_table.counts
    history.compete_within(70)
    assert (history.window_seconds, history.recent_table.counts) == (60, counts)
    history.compete_within(90)
    assert (history.window_seconds, history.recent_table.counts) == (90, {})


def test_late_claims_make_the_pool_larger_and_claims_in_time_smaller() -> None:
    sizes = []
    for late in (False, True):
        history = busy_weeks(weeks=1)
        for each in range(2000):
            history.served(late=late and each % 20 == 0)
        sizes.append(history.replicas(MONDAY + 7 * DAY, 0.05, with_forecast=False))
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
