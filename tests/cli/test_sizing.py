"""`poolhouse warmpool advise` and `why`: the compared policies, the plot and the sentences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest

from controllers.warmpool.autoscaling.history import DemandHistory
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.cli.output import Failed
from poolhouse.cli.sizing import Demand, Replay, demand_of, explain, lines, replay_of
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
    found = explain(a_pool(2, autoscaling=AUTOSCALING, status=status), written(MONDAY), NOW)
    assert list(lines(found)) == [
        "web: 3 of 4 VMs can be claimed, 1 not ready yet, 0 claims queued",
        "size 4 (WaitTarget): 12.0 claims per hour",
        "decided at 2026-01-05T00:00:00Z; 0.5 % of the claims were late; VMs waited 3.0 hours that day",
        "next change: 6 at 2026-01-05T08:00:00Z (Schedule)",
        "last week: 1 claim until 2026-01-05T01:00:00Z and none since then; a VM boots in 60 s",
    ]


def test_why_of_a_fixed_size_has_the_problems_and_names_the_comparison() -> None:
    condition = {"type": "Available", "status": "False", "reason": "InsufficientCapacity", "message": "full"}
    image = {"disk": "root", "dataSource": "ns/debian", "kind": "pvc", "namespace": "images", "name": "debian-7"}
    found = explain(a_pool(2, status={"conditions": [condition], "dataSources": [image]}), written(MONDAY), NOW)
    assert list(lines(found))[1:] == [
        "the size is spec.replicas: 2",
        "last week: 1 claim until 2026-01-05T01:00:00Z and none since then; a VM boots in 60 s",
        "disk root of new VMs: pvc images/debian-7",
        "Available: InsufficientCapacity: full",
        "compare sizes and autoscaling with: poolhouse warmpool advise web",
    ]
    assert list(lines(explain(a_pool(2), Demand(DemandHistory(), ()), NOW)))[1:] == ["the size is spec.replicas: 2"]


def written(*arrivals: float, newer: tuple[float, ...] | None = ()) -> Demand:
    """What a pool's status has an hour after MONDAY began, and the claims since then."""
    history = a_history(*arrivals)
    history.encode(MONDAY + HOUR)
    return Demand(history, newer)


UNTIL = "until 2026-01-05T01:00:00Z"


@pytest.mark.parametrize(
    ("demand", "now", "expected"),
    [
        pytest.param(written(MONDAY, newer=(1.0, 2.0)), NOW, f"1 claim {UNTIL} and 2 since then; {BOOT}", id="newer"),
        pytest.param(
            written(MONDAY, newer=None), NOW, f"1 claim {UNTIL}; you may not list later ones; {BOOT}", id="forbidden"
        ),
        pytest.param(written(), NOW, f"0 claims {UNTIL} and none since then; {BOOT}", id="no claim yet"),
        pytest.param(
            written(MONDAY), NOW + timedelta(days=8), f"0 claims {UNTIL} and none since then; {BOOT}", id="long ago"
        ),
        pytest.param(Demand(DemandHistory(), (1.0,)), NOW, "1 claim", id="nothing is written yet"),
    ],
)
def test_the_claims_of_the_last_week(demand: Demand, now: datetime, expected: str) -> None:
    assert list(lines(explain(a_pool(2), demand, now)))[2] == f"last week: {expected}"


def a_claim(second: int, pool: str = "web", namespace: str = "ns") -> dict[str, Any]:
    time = format_time(NOW + timedelta(seconds=second))
    return {"metadata": {"namespace": namespace, "creationTimestamp": time}, "status": {"poolName": pool}}


def test_claims_that_are_not_in_the_history_yet_are_replayed_too() -> None:
    history = a_history(MONDAY)
    status = {"demandHistory": history.encode(NOW.timestamp())}
    pool = a_pool(2, status=status, creationTimestamp=format_time(NOW))
    claims = [a_claim(9), a_claim(-9), a_claim(8), a_claim(9, "other"), a_claim(9, namespace="other")]
    demand = demand_of(pool, claims)
    assert demand.newer == (NOW.timestamp() + 8, NOW.timestamp() + 9)
    assert len(replay_of(pool, demand).arrivals) == 3
    assert demand_of(pool, None).newer is None


def test_a_replay_says_which_figure_is_missing() -> None:
    with pytest.raises(Failed, match="no claims of web are recorded"):
        replay_of(a_pool(2), written())
    with pytest.raises(Failed, match="not yet measured how long a VM of web boots; give --boot-seconds"):
        replay_of(a_pool(2), Demand(DemandHistory(), (1.0,)))
