"""What a pool does next: state → actions. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.sets.write_batches import Failure
from controllers.shared.vm import VM
from tests.controllers.pool.builders import NOW, a_pool, ago, snapshot, vm, vmi

OLDEST = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}
NEWEST = {"proactive": {"selectionPolicy": {"basePolicy": "Newest"}}}
FAILING = vm(1, revision="r0", ready=False, vmi_exists=False, start_failures=3)


def refused(observed: PoolSnapshot) -> PoolSnapshot:
    return replace(observed, failure=Failure("FailedDelete", "no"))


OLD_THIRTEEN = [vm(n, created_at=f"{n:02}", revision="r0", ready=n != 9) for n in range(1, 14)]
BOTH = {"scaleInStrategy": OLDEST, "updateStrategy": NEWEST, "maxUnavailable": 2}


LIFETIME = {"maxUnavailable": 1, "maxLifetimeSeconds": 86_400}
DRAIN = {"name": "drain", "transition": "Terminating"}


def restarting(ordinal: int, *, revision: str = "r1") -> VM:
    """A VM that has outlived maxLifetimeSeconds."""
    return vm(ordinal, revision=revision, vmi=vmi(f"web-{ordinal}", revision=revision, created_at=ago(90_000)))


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            refused(snapshot(a_pool(10, **BOTH), *OLD_THIRTEEN)),
            ["Delete web-1", "Delete web-2", "Delete web-3", "Update web-13", "Update web-9"],
            id="scale-in and a rollout share the budget",
        ),
        pytest.param(
            refused(snapshot(a_pool(1, **{**BOTH, "updateStrategy": OLDEST}), *OLD_THIRTEEN[:3])),
            ["Delete web-1", "Delete web-2", "Update web-3"],
            id="no VM is updated that is to be deleted",
        ),
        pytest.param(
            refused(snapshot(a_pool(2, autohealing={}), FAILING, vm(2, revision="r0"))),
            ["Heal web-1"],
            id="no VM is updated that is to be replaced",
        ),
        pytest.param(
            refused(snapshot(a_pool(2, **LIFETIME), restarting(1, revision="r0"), restarting(2))),
            ["Update web-1"],
            id="an update and the end of a lifetime share the budget",
        ),
        pytest.param(
            refused(
                snapshot(
                    a_pool(3, lifecycleHooks=[DRAIN], updateStrategy={"opportunistic": {}}, **LIFETIME),
                    vm(1, revision="r0", ready=False, vmi=None),
                    restarting(2),
                    restarting(3),
                    vm(4, scale_in="First"),
                )
            ),
            ["SetInService web-2", "SetInService web-3", "SetInService web-4", "Hold web-4"],
            id="a VM that is held from now on is not available",
        ),
    ],
)
def test_a_refused_step_does_not_block_the_next_steps(observed: PoolSnapshot, expected: list[str]) -> None:
    assert [f"{each.verb} {each.name}" for each in plan(observed, NOW).actions] == expected


def test_equal_snapshots_give_equal_plans() -> None:
    machines = [vm(n) for n in range(1, 30)]
    one, other = snapshot(10, *machines), snapshot(10, *reversed(machines))
    assert {a.name for a in plan(one, NOW).actions} == {a.name for a in plan(other, NOW).actions}
