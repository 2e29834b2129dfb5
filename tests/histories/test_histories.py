"""A few histories of each kind. `make chaos` runs more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.histories.__main__ import KINDS, crash_at_each_write, run_history
from tests.histories.history import History
from tests.histories.pools import PoolHistory
from tests.histories.world import World

SEEDS = {kind: 2 if kind.startswith("pool-") else 6 for kind in KINDS}
TIMEOUT_SECONDS = 600.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sentence("1.9", "3.2")
def test_invariants_hold_in_seeded_histories(kind: str) -> None:
    # A process of its own, because a seed repeats its history only with the same hashes of strings.
    command = [sys.executable, "-m", "tests.histories", "--kind", kind, "--seeds", str(SEEDS[kind])]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (run_history(KINDS["pool-proactive"], "3") for _ in range(2))
    assert (first.log, first.changes) == (second.log, second.changes)
    assert first.log != run_history(KINDS["pool-proactive"], "4").log


def test_a_pool_that_exceeds_the_disruption_budget_is_found() -> None:
    def strict(world: World) -> History:
        return PoolHistory(world, "proactive", tolerated=0)

    found = [each for seed in range(1, 4) for each in run_history(strict, str(seed)).violations]
    assert any("must be" in each for each in found), found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pool-offline", "replica-set", "warm-pool", "migration-policy"])
def test_a_crash_between_two_writes_does_no_harm(kind: str) -> None:
    """`python -m tests.histories --each-write` crashes at all writes, and not only at a few."""
    crashes, found = crash_at_each_write(kind, every=24)
    assert crashes > 0
    assert found == []
