"""1,000 claims at once for 100 VMs, while the controllers are killed and the clock steps.

    python -m tests.cluster.claim_burst [--claims 1000] [--vms 100] [--kills 10] [--steps 3600 -7200 0]

Exactly as many claims as there are VMs must be Ready, each with a VM of its own, and the others must fail for lack of
capacity. Each process of the controllers is ended by SIGKILL, sometimes while a second one works too, and its clock
steps by one of `--steps` seconds while it works. A watch checks the invariants of warm pools all the time.

It takes minutes, so it is no test of `make test`, which kills controllers between the writes of fewer claims.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import VMS
from poolhouse.stack.paths import StackPaths
from tests.cluster.chaos import watched
from tests.cluster.claiming import Counter, counter, every
from tests.cluster.pooling import until
from tests.cluster.simulated.conftest import ALONE
from tests.cluster.warm_invariants import InvariantChecker
from tests.cluster.warm_pools import controllers
from tests.conftest import stack

Json = dict[str, Any]

PATIENCE_SECONDS = 900.0


async def work(kubeconfig: Path, step: float) -> None:
    """Runs the controllers until the process is killed. They begin with the next line of the standard input, and their
    clock steps as soon as they work."""
    ahead = 0.0
    print("loaded", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with controllers(kubeconfig, wall=lambda: time.time() + ahead):
        ahead = step
        await asyncio.Event().wait()


async def started(kubeconfig: Path, steps: Sequence[float]) -> list[asyncio.subprocess.Process]:
    """Processes of the controllers that begin at the same moment."""
    found = []
    for step in steps:
        command = [sys.executable, "-m", "tests.cluster.claim_burst", "--work", str(kubeconfig), "--steps", str(step)]
        pipe = asyncio.subprocess.PIPE
        found.append(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))
    for process in found:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.stdout.readline() == b"loaded\n"
    for process in found:
        assert process.stdin is not None
        process.stdin.write(b"begin\n")
    return found


async def kill(*processes: asyncio.subprocess.Process) -> None:
    for process in processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        await process.wait()


async def phases(desk: Counter) -> Tally[str]:
    return Tally((each.get("status") or {}).get("phase", "Pending") for each in await every(desk.api, desk.namespace))


async def burst(paths: StackPaths, options: argparse.Namespace, random: Random) -> dict[str, object]:
    kubeconfig, checker = paths.kubeconfig_of("controllers"), InvariantChecker()
    kills, progress, given = 0, list[int](), set[str]()

    def saw(kind: str, document: Json) -> None:
        checker.vm_event(kind, document)
        if document["metadata"]["labels"].get(meta.CLAIM_UID):
            given.add(document["metadata"]["uid"])

    def more_than(share: int) -> Callable[[], bool]:
        return lambda: len(given) > share

    async with counter(paths.kubeconfig) as desk:
        async with controllers(kubeconfig):
            await desk.filled(options.vms)
        await desk.change(paused=True)  # no VM is created meanwhile
        checker.leaders = 2
        async with watched(desk.api, VMS, desk.namespace, saw):
            names = [f"c{number}" for number in range(options.claims)]
            claims = [desk.claim(name, poolName="web", onEmpty="Queue", bindTimeoutSeconds=3600) for name in names]
            await asyncio.gather(*claims)
            began = time.monotonic()
            while kills < options.kills:
                # Sometimes a second process works too. The next share of the VMs is given away before they are killed.
                number = min(options.kills - kills, random.choice([1, 1, 2]))
                share = min(options.vms - 1, (kills + 1) * options.vms // (options.kills + 1))
                living = await started(kubeconfig, random.choices(options.steps, k=number))
                await until(more_than(share), True, PATIENCE_SECONDS)
                await kill(*living)
                kills += number
                progress.append(len(given))
            (last,) = await started(kubeconfig, [0.0])
            try:
                await until(lambda: ready(desk), options.vms, PATIENCE_SECONDS)
                # Claims that still wait get nothing, and end one after the other.
                left = [name for name, status in (await desk.claims()).items() if status.get("phase") != "Ready"]
                await asyncio.gather(*(desk.alter(name, release=True) for name in left))
                await until(lambda: waiting(desk), 0, PATIENCE_SECONDS)
            finally:
                await kill(last)
        served = [s["vmRef"]["uid"] for s in (await desk.claims()).values() if s.get("phase") == "Ready"]
        machines, _ = await desk.api.list(VMS, desk.namespace)
        assert len(served) == len(set(served)) == options.vms, f"{len(served)} served, {len(set(served))} VMs"
        assert {each["metadata"]["uid"] for each in machines} == set(served), "no VM was lost or created"
        assert not checker.violations, checker.violations
        return {
            "claims": options.claims,
            "served": len(served),
            "vms": len(machines),
            "kills": kills,
            "given_away_at_each_kill": progress,
            "seconds": round(time.monotonic() - began, 1),
        }


async def ready(desk: Counter) -> int:
    return (await phases(desk))["Ready"]


async def waiting(desk: Counter) -> int:
    found = await phases(desk)
    return sum(found.values()) - found["Ready"] - found["Released"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=1000)
    parser.add_argument("--vms", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=float, nargs="+", default=[3600.0, -7200.0, 0.0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        asyncio.run(work(options.work, options.steps[0]))
        return
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        paths = StackPaths(Path(directory))
        with stack(paths, "--engine", "simulated", *ALONE):
            print(json.dumps(asyncio.run(burst(paths, options, Random(options.seed)))))


if __name__ == "__main__":
    main()
