"""What a rolling update costs: 1,000 simulated VMs get a new template, 25 % of them at a time.

    python -m bench.rollout [--kubeconfig FILE] [--vms 1000]

The floor is a bare client that changes and restarts the same VMs in waves of the same size, and waits for each wave as
long as the guests take: what remains is what deciding, waiting for one's own writes and reporting cost.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

from bench.pool import NAMESPACE, all_of, cluster, controllers, manifest, prepare
from controllers.main import CONNECTIONS
from controllers.pool.stores import POOLS
from runtime.api import Api
from runtime.resource import VMIS, VMS, Resource
from tests.cluster.pooling import engine

Json = dict[str, Any]

DEADLINE_SECONDS = 900
NAME = "bench"


async def run(kubeconfig: Path, vms: int) -> None:
    async with await Api.connect(kubeconfig, user_agent="bench", max_connections=CONNECTIONS + 1) as api:
        await prepare(api)
        async with engine(kubeconfig, kubeconfig.parent), controllers(kubeconfig):
            await api.create(POOLS, manifest(NAME, vms))
            started, _ = await updated(api, vms)
            await api.patch(POOLS, NAMESPACE, NAME, {"spec": {"template": sized("192Mi")}})
            pooled, lowest = await updated(api, vms)
            await api.patch(POOLS, NAMESPACE, NAME, {"spec": {"paused": True}})
            floor = await bare(api, max(1, vms // 4))
    print(f"\nrolling update of {vms} VMs, {vms // 4} at a time   bare s   pool s   ratio")
    print(f"  {'all VMs have the template and are ready':48} {floor:8.2f} {pooled:8.2f} {pooled / floor:7.2f}")
    print(f"  from nothing to {vms} ready: {started:.1f} s; the status never told of fewer than {lowest} available")


def sized(memory: str) -> Json:
    return {"spec": {"template": {"spec": {"domain": {"memory": {"guest": memory}}}}}}


async def updated(api: Api, vms: int) -> tuple[float, int]:
    """Seconds until the pool says that all its VMs have the template it has now and are ready, and how few were
    available on the way."""
    begun, lowest = time.perf_counter(), vms
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            pool = await api.get(POOLS, NAMESPACE, NAME)
            status = pool.get("status") or {}
            counts = {status.get(name) for name in ("replicas", "readyReplicas", "updatedReplicas")}
            if status.get("observedGeneration") == pool["metadata"]["generation"] and counts == {vms}:
                return time.perf_counter() - begun, lowest
            lowest = min(lowest, status.get("availableReplicas", 0))
            await asyncio.sleep(0.1)


async def bare(api: Api, wave: int) -> float:
    """Seconds to change and restart every VM, so many at a time."""
    machines = await listed(api, VMS)
    begun = time.perf_counter()
    for start in range(0, len(machines), wave):
        taken = machines[start : start + wave]

        async def restart(vm: Json) -> None:
            name = vm["metadata"]["name"]
            await api.patch(VMS, NAMESPACE, name, {"spec": sized("256Mi")["spec"]})
            await api.delete(VMIS, NAMESPACE, name)

        await all_of(restart, taken)
        names = {vm["metadata"]["name"] for vm in taken}
        while not names <= await ready(api):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    return time.perf_counter() - begun


async def ready(api: Api) -> set[str]:
    """VMs whose new run is up."""
    runs = await listed(api, VMIS)
    up = (run for run in runs if run.get("status", {}).get("phase") == "Running")
    return {run["metadata"]["name"] for run in up if run["spec"]["domain"]["memory"]["guest"] == "256Mi"}


async def listed(api: Api, resource: Resource) -> list[Json]:
    return [each async for items, _ in api.pages(resource, NAMESPACE) for each in items]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--vms", type=int, default=1000)
    options = parser.parse_args()
    with cluster(options.kubeconfig) as kubeconfig:
        asyncio.run(run(kubeconfig, options.vms))


if __name__ == "__main__":
    main()
