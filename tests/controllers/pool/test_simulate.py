"""What would become of a pool if all went well."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from controllers.pool.actions import Action
from controllers.pool.simulate import after, rows, simulate
from controllers.pool.snapshot import PoolSnapshot
from tests.controllers.pool.builders import NOW, a_pool, machine, state

OLDEST = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}


def foreseen(observed: PoolSnapshot) -> list[tuple[Any, ...]]:
    return [(row["step"], row["action"], row["vm"]) for row in rows(simulate(observed, NOW))]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(state(1, machine(1)), [], id="at rest nothing will be done"),
        pytest.param(
            state(3, machine(2), burst=1),
            [(1, "Create", "web-1"), (2, "Create", "web-3")],
            id="burst after burst",
        ),
        pytest.param(
            state(a_pool(0, scaleInStrategy=OLDEST), machine(1), machine(2), burst=1),
            [(1, "Delete", "web-1"), (2, "Delete", "web-2")],
            id="those who leave in their order",
        ),
        pytest.param(
            state(a_pool(2, maxUnavailable=1), machine(1, revision="r0"), machine(2)),
            [(1, "Update", "web-1"), (2, "Restart", "web-1")],
            id="a VM is updated, then restarted",
        ),
        pytest.param(state(2, saved=False, burst=9), [(1, "Create", "web-1"), (1, "Create", "web-2")], id="VMs only"),
    ],
)
def test_foresight(observed: PoolSnapshot, expected: list[tuple[Any, ...]]) -> None:
    assert foreseen(observed) == expected


def test_it_says_when_it_has_not_looked_to_the_end() -> None:
    foresight = simulate(state(9, burst=1), NOW, most_steps=3)
    assert (len(foresight.steps), foresight.complete) == (3, False)


def test_it_says_what_stays_undone() -> None:
    foresight = simulate(state(0, machine(1, scale_in="Protect")), NOW)
    assert foresight.complete
    assert "web-1 is protected" in foresight.blocked


@pytest.mark.parametrize("kind", get_args(Action), ids=lambda kind: str(kind.__name__))
def test_every_action_leads_somewhere(kind: type) -> None:
    assert after.dispatch(kind) is not after.dispatch(object)
