"""Runs histories from a command line; see `make chaos`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable
from random import Random

from tests.histories.history import History
from tests.histories.pools import STRATEGIES, PoolHistory
from tests.histories.world import World, quiet_logs
from tests.virtual_loop import VirtualLoop

ACTS = 16
"""Acts of users, lost nodes and clock jumps in a history."""
SHOWN = 60
"""Lines of the log of a failed history."""

KINDS: dict[str, Callable[[World], History]] = {
    **{f"pool-{name}": lambda world, name=name: PoolHistory(world, name) for name in STRATEGIES},
}


def run_history(make: Callable[[World], History], seed: str, acts: int = ACTS) -> World:
    async def history() -> World:
        world = World(Random(seed))
        await make(world).run(acts)
        return world

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        return runner.run(history())


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
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no history after this time")
    parser.add_argument("--keep-going", action="store_true", help="run the other seeds after a failure")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what happened in each history")
    options = parser.parse_args()
    quiet_logs()
    began, failed = time.monotonic(), 0
    for kind in options.kind or KINDS:
        count = changes = 0
        at = time.monotonic()
        for seed in range(options.first, options.first + options.seeds):
            if time.monotonic() - began > options.seconds:
                break
            started = time.monotonic()
            world = run_history(KINDS[kind], f"{kind}/{seed}")
            if options.verbose:
                print(
                    f"{kind}: seed {seed}: {world.changes} writes in {time.monotonic() - started:.1f} s",
                    flush=True,
                )
            count, changes = count + 1, changes + world.changes
            if world.violations:
                failed += 1
                print(f"{kind}: seed {seed} fails; repeat it by: make chaos KIND={kind} SEED={seed}")
                print(*(f"  {each}" for each in world.violations), sep="\n")
                if not options.keep_going:
                    print(*(f"    {each}" for each in world.log[-SHOWN:]), sep="\n")
                    return 1
        print(
            f"{kind}: seeds {options.first} to {options.first + count - 1}, {changes} writes,"
            f" {time.monotonic() - at:.0f} s, {failed} failed",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
