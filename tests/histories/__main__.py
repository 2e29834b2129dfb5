"""Runs histories from a command line; see `make chaos`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tests.histories.client import Failpoint
from tests.histories.drains import DrainHistory
from tests.histories.history import History
from tests.histories.pods import PodHistory
from tests.histories.policies import PolicyHistory
from tests.histories.pools import STRATEGIES, PoolHistory
from tests.histories.replica_sets import ReplicaSetHistory
from tests.histories.snapshots import SnapshotHistory
from tests.histories.warm_pools import WarmPoolHistory
from tests.histories.world import World, quiet_logs
from tests.virtual_loop import VirtualLoop

ACTS = 16
"""Acts of users, lost nodes and clock jumps in a history."""
SHOWN = 60
"""Lines of the log of a failed history."""

SHOW_EVERY_SECONDS = 60
"""how often a run says how far it is"""

KINDS: dict[str, Callable[[World], History]] = {
    **{f"pool-{name}": partial(PoolHistory, strategy=name) for name in STRATEGIES},
    "pool-snapshots": partial(SnapshotHistory, strategy="snapshots"),
    "pool-drain": DrainHistory,
    "replica-set": ReplicaSetHistory,
    "warm-pool": WarmPoolHistory,
    "pod": PodHistory,
    "migration-policy": PolicyHistory,
}


@dataclass
class Total:
    """The histories of one kind so far."""

    histories: int = 0
    last: int = 0
    acts: int = 0
    crashes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    writes: int = 0
    seconds: float = 0.0
    failed: int = 0

    def add(self, seed: int, world: World, seconds: float) -> None:
        self.histories, self.last, self.seconds = self.histories + 1, seed, self.seconds + seconds
        self.acts, self.writes = self.acts + len(world.log), self.writes + world.changes
        self.crashes, self.faults = self.crashes + world.crashes, self.faults + world.faults
        self.failed += bool(world.violations)

    def text(self, first: int) -> str:
        return (
            f"{self.histories} histories (seeds {first} to {self.last}), {self.acts} disturbances,"
            f" {self.crashes} crashes at a write, {self.faults.total()} faulty answers, {self.writes} writes checked,"
            f" {self.failed} failed, {self.seconds:.0f} s"
        )


def run_history(make: Callable[[World], History], seed: str, acts: int = ACTS) -> World:
    async def history() -> World:
        world = World(Random(seed))
        await make(world).run(acts)
        return world

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        return runner.run(history())


def run_script(make: Callable[[World], History], failpoint: Failpoint | None) -> tuple[World, int]:
    """The history of a script with a crash at a write, and the number of writes before the end or the crash."""

    async def history() -> tuple[World, int]:
        world = World(Random("script"))
        return world, await make(world).run_script(failpoint)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        return runner.run(history())


def crash_at_each_write(kind: str, every: int = 1) -> tuple[int, list[str]]:
    """Crashes before and after each write of the script. Returns the number of crashes, and what was violated."""
    world, writes = run_script(KINDS[kind], None)
    crashes, found = 0, [f"without a crash: {each}" for each in world.violations]
    for number in range(1, writes + 1, every):
        for after in (False, True):
            world, _ = run_script(KINDS[kind], Failpoint(number, after))
            gc.collect()
            crashes += world.crashes
            found += [f"{'after' if after else 'before'} write {number}: {each}" for each in world.violations]
    return crashes, found


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings must be the same in each run, so that a seed repeats its history.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.histories", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="repeatable; the default is all kinds")
    parser.add_argument("--seeds", type=int, default=20, help="histories of each kind")
    parser.add_argument("--acts", type=int, default=ACTS, help="acts of users in a history")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no history after this time")
    parser.add_argument("--keep-going", action="store_true", help="run the other seeds after a failure")
    parser.add_argument("--each-write", action="store_true", help="crash at each write of a script instead")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what happened in each history")
    options = parser.parse_args()
    # A history leaves no cycles that matter, and the collector would visit all objects again and again.
    gc.disable()
    if options.each_write:
        failed = 0
        for kind in options.kind or KINDS:
            crashes, found = crash_at_each_write(kind)
            failed += len(found)
            print(f"{kind}: {crashes} crashes, {len(found)} violations", *found, sep="\n  ", flush=True)
        return 1 if failed else 0
    began, totals = time.monotonic(), {kind: Total() for kind in options.kind or KINDS}
    shown = began
    for seed in range(options.first, options.first + options.seeds):
        if time.monotonic() - shown > SHOW_EVERY_SECONDS:
            shown = time.monotonic()
            print(f"{seed - options.first} of {options.seeds} histories of each kind", flush=True)
        for kind, total in totals.items():
            if time.monotonic() - began > options.seconds:
                break
            started = time.monotonic()
            world = run_history(KINDS[kind], f"{kind}/{seed}", options.acts)
            seconds = time.monotonic() - started
            total.add(seed, world, seconds)
            gc.collect()
            if options.verbose:
                print(f"{kind}: seed {seed}: {world.changes} writes in {seconds:.1f} s", flush=True)
            if world.violations:
                print(f"{kind}: seed {seed} fails; repeat it by: make chaos KIND={kind} SEED={seed}")
                print(*(f"  {each}" for each in world.violations), sep="\n", flush=True)
                if not options.keep_going:
                    print(*(f"    {each}" for each in world.log[-SHOWN:]), sep="\n")
                    return 1
    for kind, total in totals.items():
        print(f"{kind}: {total.text(options.first)}")
    faults = sum((total.faults for total in totals.values()), Counter[str]())
    print("faults:", ", ".join(f"{name} {count}" for name, count in sorted(faults.items())))
    return 1 if any(total.failed for total in totals.values()) else 0


if __name__ == "__main__":
    with quiet_logs():
        raise SystemExit(main())
