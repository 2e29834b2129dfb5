"""How long an object waits whose plan was too expensive."""

from __future__ import annotations

import pytest

from controllers.pool.reasons import PoolReason
from controllers.replicaset.reasons import ReplicaSetReason
from controllers.sets.set_aside import CHANGED_SECONDS, REASON, SetAside
from controllers.warmpool.reasons import WarmPoolReason


@pytest.mark.parametrize(
    ("times", "generation", "now", "least", "most"),
    [
        pytest.param(1, 7, 0.0, 22, 30, id="the first pause"),
        pytest.param(2, 7, 0.0, 45, 60, id="the pause grows"),
        pytest.param(50, 7, 0.0, 450, 600, id="up to ten minutes"),
        pytest.param(1, 7, 40.0, 0, 0, id="it is over"),
        pytest.param(50, 8, 0.0, CHANGED_SECONDS, CHANGED_SECONDS, id="a changed spec is tried soon"),
        pytest.param(50, 8, CHANGED_SECONDS, 0, 0, id="a changed spec that changes all the time is not tried at once"),
    ],
)
def test_pauses(times: int, generation: int, now: float, least: float, most: float) -> None:
    assert least <= SetAside(7, 0.0, times).seconds_left(generation, now) <= most


def test_each_kind_documents_the_reason() -> None:
    documented = (PoolReason.PLAN_TOO_EXPENSIVE, ReplicaSetReason.PLAN_TOO_EXPENSIVE, WarmPoolReason.PLAN_TOO_EXPENSIVE)
    assert {str(each) for each in documented} == {REASON}
