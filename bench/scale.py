"""Measures many pools in one controller: 200 pools of 50 VMs, with their VMIs.

    python -m bench.scale [--dir DIR] [--pools 200] [--vms 50]

The results are the time until all VMs exist, as a ratio to a bare client, the writes per VM, the memory of the
controllers, and the CPU time per change of a VM. The benchmark measures this CPU time with a tenth of the pools too,
because the cost of a change must not depend on the number of VMs.
"""

import asyncio
import time
from pathlib import Path

from bench import harness
from bench.pool import WORKLOADS, bare, pool
from controllers.pool.observe import POOLS
from runtime.api import Api
from runtime.resource import VMIS, VMS

CHANGES = 300
SETTLE_SECONDS = 8.0
BARE_VMS = 1000
MEMORY_GOAL_MB = 300


async def run(directory: Path, pools: int, vms: int) -> None:
    kubeconfig = directory / "kubeconfig"
    few, total = max(1, pools // 10), pools * vms
    async with await harness.connect(kubeconfig) as api:
        await harness.prepare(api, VMS, VMIS, POOLS)
        floor = (await bare(api, WORKLOADS[0], BARE_VMS))[0] / BARE_VMS * total
        async with harness.controllers(kubeconfig) as process:
            idle, _ = process.resident_mb()
            seconds = await created(api, 0, few, vms)
            cost_few = await cpu_ms_per_change(api, process, few, vms)
            seconds += await created(api, few, pools, vms)
            harness.section(f"{pools} pools of {vms} VMs in one controller")
            harness.report_ratio("until all VMs exist", floor, seconds)
            for (verb, resource), writes in (await process.writes()).most_common():
                harness.report(f"{verb} {resource}, for each VM", f"{writes / total:.2f}", writes=writes / total)
            with_vms, _ = process.resident_mb()
            harness.report("resident memory with the VMs", f"{with_vms:.0f} MB", now_mb=with_vms)
            await create_vmis(api)
            cost = await cpu_ms_per_change(api, process, few, vms)
            now, peak = process.resident_mb()
            harness.report(
                "resident memory with their VMIs",
                f"idle {idle:.0f} MB, now {now:.0f} MB, peak {peak:.0f} MB, goal {MEMORY_GOAL_MB} MB",
                idle_mb=idle,
                now_mb=now,
                peak_mb=peak,
            )
            ratio = cost / cost_few if cost_few else float("nan")
            harness.report(
                "CPU time for a change of one VM",
                f"{few * vms} VMs {cost_few:.2f} ms, {total} VMs {cost:.2f} ms, ratio {ratio:.2f}",
                ratio=ratio,
                change_ms=cost,
            )


async def created(api: Api, first: int, last: int, vms: int) -> float:
    """Creates the pools with these numbers, and returns the seconds until their VMs exist."""

    async def exist() -> bool:
        return await harness.count(api) >= last * vms

    seconds = await harness.create_all(api, POOLS, [pool(f"p{number}", vms) for number in range(first, last)])
    return seconds + await harness.poll(exist, every_seconds=0.1)


async def create_vmis(api: Api) -> None:
    """Creates a VMI for every VM, as KubeVirt does."""
    vms = [vm async for items, _ in api.pages(VMS, harness.NAMESPACE) for vm in items]
    await harness.create_all(api, VMIS, map(harness.vmi_of, vms))


async def cpu_ms_per_change(api: Api, process: harness.Process, pools: int, vms: int) -> float:
    """Returns the CPU time of the controllers per change of a VM, without their CPU time at rest."""
    await asyncio.sleep(SETTLE_SECONDS)
    quiet, begun = process.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(2)
    at_rest = (process.cpu_seconds() - quiet) / (time.perf_counter() - begun)
    before, begun = process.cpu_seconds(), time.perf_counter()
    for number in range(CHANGES):
        change = {"metadata": {"labels": {"seen": str(number)}}}
        await api.patch(VMS, harness.NAMESPACE, f"p{number % min(pools, 10)}-{number % min(vms, 40) + 1}", change)
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    spent = process.cpu_seconds() - before - at_rest * (time.perf_counter() - begun)
    return max(0.0, spent) / CHANGES * 1000


def main() -> None:
    options = harness.parse_options(__doc__, dir=None, pools=200, vms=50)
    with harness.stack(options.dir) as directory:
        asyncio.run(run(directory, options.pools, options.vms))


if __name__ == "__main__":
    main()
