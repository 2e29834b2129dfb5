"""`poolhouse warmpool advise` and `why`: the compared policies, the plot and the sentences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest

from controllers.warmpool.autoscaling.autoscaler import ClaimEvents, PoolAutoscaler
from controllers.warmpool.autoscaling.history import DemandHistory
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.warmpool import WarmPoolStatus
from poolhouse.cli.demand import WEEK, Demand, demand_of
from poolhouse.cli.output import Failed
from poolhouse.cli.sizing import Replay, explain, lines, replay_of
from poolhouse.cli.svg import Series, step_chart
from tests.controllers.warmpool.autoscaling.test_history import MONDAY, a_history
from tests.controllers.warmpool.builders import a_pool

HOUR = 3600.0
NOW = datetime.fromtimestamp(MONDAY + HOUR, UTC)
BOOT = "a VM boots in 60 s"
BURSTS = [MONDAY + hour * HOUR + each for hour in range(48) for each in range(6)]


def a_replay(**pool: Any) -> Replay:
    return Replay(a_pool(3, **pool), BURSTS, 60.0, 2.0, HOUR, 1, 99)


@pytest.fixture(scope="module")
def compared() -> tuple[Replay, list[dict[str, Any]]]:
    replay = a_replay()
    return replay, list(replay.rows([5]))


def test_the_pool_is_compared_with_other_sizes_and_autoscaling(compared: Any) -> None:
    rows = {(row["policy"], row["standby"]): row for row in compared[1]}
    now, smallest = rows["replicas: 3 (now)", "Running"], rows["replicas: 6 (smallest)", "Running"]
    assert (now["coldStarts"], now["waitP50"], now["waitP99"], now["meetsTarget"]) == (3 * 48, 0.1, 60.0, False)
    assert now["idleVMHours"] == pytest.approx(3 * 47.25, rel=0.01)
    assert (smallest["coldStarts"], smallest["meetsTarget"]) == (0, True)
    assert rows["replicas: 5", "Running"]["coldStarts"] == 48
    scaled = rows["autoscaling", "Running"]
    assert scaled["idleVMHours"] <= smallest["idleVMHours"] * 1.1
    assert scaled["waitP50"] == 0.1
    # A resume and a boot take longer than the target, whatever the size.
    assert {row["meetsTarget"] for (_, standby), row in rows.items() if standby != "Running"} == {False}


def test_the_own_standby_mode_comes_first() -> None:
    row = next(a_replay(standby={"mode": "Paused"}).rows(()))
    assert (row["standby"], row["waitP50"]) == ("Paused", 2.0)


def test_claims_that_fail_have_no_wait() -> None:
    row = next(a_replay(claimPolicy={"onEmpty": "Fail"}).rows(()))
    assert row["waitP99"] is None


def test_the_plot_is_an_svg_with_claims_and_sizes(compared: Any) -> None:
    drawn = compared[0].plot("a <pool>")
    texts = [each.text for each in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert {"a <pool>", "claims in 15 minutes", "replicas: 6", "autoscaling", "Mon 00:00"} <= set(texts)


def test_a_series_begins_at_its_last_value_before_the_chart() -> None:
    drawn = step_chart("x", 0.0, 70.0, [Series("s", [(-20.0, 9.0), (-10.0, 2.0), (35.0, 4.0)])])
    assert "M60.0 140.0H500.0V60.0H940.0" in drawn


AUTOSCALING = {"maxReplicas": 9, "target": {"waitSeconds": 1}}
DECIDED = {
    "desiredReplicas": 4,
    "reason": "WaitTarget",
    "message": "12.0 claims per hour",
    "decidedTime": "2026-01-05T00:00:00Z",
    "lateClaimsPercent": "0.5",
    "idleHoursToday": "3.0",
    "nextChange": {"time": "2026-01-05T08:00:00Z", "replicas": 6, "reason": "Schedule"},
}


def test_why_has_the_decision_and_the_next_change() -> None:
    status = {"desiredReplicas": 4, "availableReplicas": 3, "provisioning": 1, "autoscaling": DECIDED}
    found = explain(a_pool(2, autoscaling=AUTOSCALING, status=status), written(MONDAY))
    assert list(lines(found)) == [
        "web: 3 of 4 VMs can be claimed, 1 not ready yet, 0 claims queued",
        "size 4 (WaitTarget): 12.0 claims per hour",
        "decided at 2026-01-05T00:00:00Z; 0.5 % of the claims were late; VMs waited 3.0 hours that day",
        "next change: 6 at 2026-01-05T08:00:00Z (Schedule)",
        "last week: 1 claim; a VM boots in 60 s",
    ]


def test_why_of_a_fixed_size_has_the_problems_and_names_the_comparison() -> None:
    available = {"type": "Available", "status": "False", "reason": "InsufficientCapacity", "message": "full"}
    progress = {"type": "Progressing", "status": "True", "reason": "Scaling", "message": "VMs are not ready: NoAnswer"}
    image = {"disk": "root", "dataSource": "ns/debian", "kind": "pvc", "namespace": "images", "name": "debian-7"}
    found = explain(a_pool(2, status={"conditions": [available, progress], "dataSources": [image]}), written(MONDAY))
    assert list(lines(found))[1:] == [
        "the size is spec.replicas: 2",
        "last week: 1 claim; a VM boots in 60 s",
        "disk root of new VMs: pvc images/debian-7",
        "Available: InsufficientCapacity: full",
        "Progressing: Scaling: VMs are not ready: NoAnswer",
        "compare sizes and autoscaling with: poolhouse warmpool advise web",
    ]
    assert list(lines(explain(a_pool(2), Demand(DemandHistory(), ()))))[1:] == ["the size is spec.replicas: 2"]


def written(*arrivals: float, existing: tuple[float, ...] | None = (), since: float = 0.0) -> Demand:
    """What a pool's status has an hour after MONDAY began, and the claims that exist."""
    history = a_history(*arrivals)
    history.encode(MONDAY + HOUR)
    return Demand(history, existing, since)


SAVED = MONDAY + HOUR


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        pytest.param(written(MONDAY, existing=(MONDAY,)), f"1 claim; {BOOT}", id="a claim that exists counts once"),
        pytest.param(written(MONDAY), f"1 claim; {BOOT}", id="a claim that was deleted"),
        pytest.param(written(MONDAY, existing=(SAVED + 1, SAVED + 2)), f"3 claims; {BOOT}", id="newer ones"),
        pytest.param(
            written(MONDAY, existing=(MONDAY,) * 4), f"4 claims; {BOOT}", id="of the second in which the first is saved"
        ),
        pytest.param(
            written(MONDAY, existing=None),
            f"1 claim until 2026-01-05T01:00:00Z; you may not list later ones; {BOOT}",
            id="forbidden",
        ),
        pytest.param(written(), f"0 claims; {BOOT}", id="no claim yet"),
        pytest.param(written(MONDAY, existing=(MONDAY,), since=MONDAY + WEEK), f"0 claims; {BOOT}", id="long ago"),
        pytest.param(Demand(DemandHistory(), (1.0,)), "1 claim", id="nothing is written yet"),
    ],
)
def test_the_claims_of_the_last_week(demand: Demand, expected: str) -> None:
    assert list(lines(explain(a_pool(2), demand)))[2] == f"last week: {expected}"


def a_claim(second: int, pool: str = "web", namespace: str = "ns", **status: Any) -> dict[str, Any]:
    time = format_time(NOW + timedelta(seconds=second))
    return {"metadata": {"namespace": namespace, "creationTimestamp": time}, "status": {"poolName": pool, **status}}


def test_claims_that_exist_are_replayed_at_their_own_times() -> None:
    history = a_history(MONDAY, MONDAY + 1)
    status = {"demandHistory": history.encode(NOW.timestamp())}
    pool = a_pool(2, status=status, creationTimestamp=format_time(NOW - timedelta(hours=2)))
    claims = [a_claim(9), a_claim(-3600), a_claim(8), a_claim(9, "other"), a_claim(9, namespace="other")]
    demand = demand_of(pool, claims, NOW)
    assert demand.existing == (MONDAY, NOW.timestamp() + 8, NOW.timestamp() + 9)
    arrivals = replay_of(pool, demand).arrivals
    assert (len(arrivals), set(demand.existing) < set(arrivals), arrivals == sorted(arrivals)) == (4, True, True)
    assert demand_of(pool, None, NOW).existing is None


def test_a_claim_counts_once_if_the_clock_of_the_api_server_is_ahead() -> None:
    one, claim = PoolAutoscaler.from_status(WarmPoolStatus()), a_claim(2)
    pool = a_pool(2, creationTimestamp=format_time(NOW))
    one.update(pool, ClaimEvents((NOW.timestamp() + 2,)), 1, 0, NOW)
    saved = a_pool(2, creationTimestamp=format_time(NOW), status={"demandHistory": one.saved})
    assert len(demand_of(saved, [claim], NOW).arrivals) == 1


def test_claims_of_an_earlier_pool_of_the_name_do_not_count() -> None:
    pool = a_pool(2, creationTimestamp=format_time(NOW))
    assert demand_of(pool, [a_claim(-1), a_claim(0)], NOW).existing == (NOW.timestamp(),)


def test_four_claims_that_a_queue_served_at_once_wait_no_longer_than_a_boot() -> None:
    """Claims out of order had waits of minutes in the replay."""
    history = a_history(MONDAY)
    pool = a_pool(
        1, status={"demandHistory": history.encode(SAVED)}, claimPolicy={"onEmpty": "Queue"}, creationTimestamp=None
    )
    demand = demand_of(pool, [a_claim(second - 3600) for second in (0, 0, 1, 2)], NOW)
    row = next(replay_of(pool, demand, boot_seconds=2.0).rows(()))
    assert (row["policy"], row["waitP99"] <= 2.2) == ("replicas: 1 (now)", True)


def test_the_measured_waits_stand_beside_the_simulated_ones() -> None:
    served = {"readyAt": format_time(NOW), "launchType": "Warm"}
    claims = [a_claim(second, **served, timings={"totalMs": 30 + 960 * second}) for second in (0, 1)]
    demand = demand_of(a_pool(2, creationTimestamp=format_time(NOW)), [*claims, a_claim(3)], NOW)
    said = "measured: 2 claims have got a VM, wait p50 30 ms, p99 990 ms, 0 cold starts"
    assert replay_of(a_pool(2), demand, boot_seconds=2.0).measured == said


def test_a_replay_says_which_figure_is_missing() -> None:
    with pytest.raises(Failed, match="no claims of web are recorded"):
        replay_of(a_pool(2), written())
    with pytest.raises(Failed, match="not yet measured how long a VM of web boots; give --boot-seconds"):
        replay_of(a_pool(2), Demand(DemandHistory(), (1.0,)))
