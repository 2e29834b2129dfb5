"""Measures the memory of the services, as a ratio to a bare Python process with asyncio and aiohttp.

    python -m tests.bench.memory [--dir DIR] [--pools 10] [--vms 100]

RSS counts a page that processes share in each of them, and PSS divides it by their number; a limit of a container is
between them. Memory is measured when a service is idle, and that of the controllers also after they have created the
VMs of the pools, each with its VMI.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

from controllers.pool.pools import POOLS
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import VMIS, VMS
from tests.bench import harness
from tests.bench.pool import pool

SETTLE_SECONDS = 5.0
BARE = "import asyncio, aiohttp, sys; print(flush=True); sys.stdin.read()"
GOALS_MB = {"controllers": 90, "webhook": 80}
GOAL_WITH_VMS_MB = 120


def memory_mb(pid: int) -> tuple[float, float]:
    """Returns RSS and PSS of a process and all that it has started."""
    rss = pss = 0
    for each in (pid, *harness.descendants(pid)):
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()[1:]
        found = dict(line.split(":", 1) for line in lines)
        rss, pss = rss + int(found["Rss"].split()[0]), pss + int(found["Pss"].split()[0])
    return rss * 1024 / 1e6, pss * 1024 / 1e6


def bare_mb() -> tuple[float, float]:
    with subprocess.Popen([sys.executable, "-c", BARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return memory_mb(process.pid)


def report(what: str, pid: int, bare: tuple[float, float], goal: int) -> None:
    rss, pss = memory_mb(pid)
    measured = f"RSS {rss:.0f} MB, PSS {pss:.0f} MB, ratio of the PSS {pss / bare[1]:.1f}; goal {goal} MB"
    harness.report(what, measured, rss_mb=rss, pss_mb=pss, ratio=pss / bare[1])


async def run(directory: Path, pools: int, vms: int) -> None:
    kubeconfig = directory / "kubeconfig"
    bare = bare_mb()
    harness.section("memory of a process and all that it has started")
    measured = f"RSS {bare[0]:.0f} MB, PSS {bare[1]:.0f} MB"
    harness.report("python with asyncio and aiohttp", measured, rss_mb=bare[0], pss_mb=bare[1])
    async with await harness.connect(kubeconfig) as api:
        await harness.prepare(api, VMS, VMIS, POOLS)
        async with harness.service(
            "poolhouse.cli.main", "webhook", probe="/healthz", KUBECONFIG=str(kubeconfig), POOLHOUSE_DEFAULTER_URL=""
        ) as webhook:
            await asyncio.sleep(SETTLE_SECONDS)
            report("webhook, idle", webhook.pid, bare, GOALS_MB["webhook"])
        async with harness.controllers(kubeconfig) as controllers:
            await asyncio.sleep(SETTLE_SECONDS)
            report("controllers, idle", controllers.pid, bare, GOALS_MB["controllers"])
            await make(api, pools, vms)
            await asyncio.sleep(SETTLE_SECONDS)
            report(f"controllers, {pools} pools of {vms} VMs", controllers.pid, bare, GOAL_WITH_VMS_MB)
        async with harness.controllers(kubeconfig) as controllers:
            await asyncio.sleep(SETTLE_SECONDS)
            report("the same after a restart", controllers.pid, bare, GOAL_WITH_VMS_MB)


async def make(api: Api, pools: int, vms: int) -> None:
    await harness.create_all(api, POOLS, [pool(f"m{number}", vms) for number in range(pools)])
    await harness.until_count(api, pools * vms)
    documents = [vm async for items, _ in api.pages(VMS, harness.NAMESPACE) for vm in items]
    await harness.create_all(api, VMIS, map(harness.vmi_of, documents))


def main() -> None:
    options = harness.parse_options(__doc__, dir=None, pools=10, vms=100)
    with harness.stack(options.dir) as directory:
        asyncio.run(run(directory, options.pools, options.vms))


if __name__ == "__main__":
    main()
