"""Measures rolling updates of 1,000 simulated VMs to new templates, 25 % of the VMs at a time, without and with steps.

    python -m tests.bench.rollout [--dir DIR] [--vms 1000]

The bare client patches and restarts the same VMs in waves of the same size, and waits until each wave is ready. The
update with steps is compared with the updates without steps before and after it.

A live update of the same VMs is compared by the writes that the API server gets from all clients. The bare client
patches each VM, and the engine, as KubeVirt, migrates it.
"""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import VMIS, VMS, Resource
from tests.bench import harness
from tests.bench.pool import pool
from tests.cluster.pooling import engine

NAME = "bench"
WRITES = re.compile(
    r'^apiserver_request_total\{code="2\d\d",.*resource="(\w+)".*verb="(?:POST|PUT|PATCH|DELETE|APPLY)".*\} (\S+)$'
)
STEPS = ({"setReplicas": "1%"}, {"setReplicas": "10%"}, {"setReplicas": "50%"})


async def run(directory: Path, vms: int) -> None:
    kubeconfig = directory / "kubeconfig"
    async with await harness.connect(kubeconfig) as api:
        await harness.prepare(api, VMS, POOLS)
        async with engine(kubeconfig, directory):
            async with harness.controllers(kubeconfig):
                await api.create(POOLS, with_a_socket(pool(NAME, vms)))
                started, _ = await updated(api, vms)
                pooled, lowest = await update(api, vms, "192Mi")
                stepped, _ = await update(api, vms, "208Mi", STEPS)
                again, _ = await update(api, vms, "224Mi")
                live = await writes_of_live_update(api, vms)
                await api.patch(POOLS, harness.NAMESPACE, NAME, {"spec": {"paused": True}})
                floor = await bare(api, max(1, vms // 4))
            # A paused pool would write its status meanwhile.
            live_floor = await writes_of_bare_live_update(api, vms)
    harness.section(f"rolling update of {vms} VMs, {vms // 4} at a time")
    harness.report_ratio("until all VMs have the new template and are ready", floor, pooled)
    plain = (pooled + again) / 2
    said = f"without {plain:.2f} s, with {stepped:.2f} s, ratio {stepped / plain:.2f}"
    harness.report(f"the same with {len(STEPS)} steps", said, ratio=stepped / plain)
    said = f"bare {live_floor}, poolhouse {live}, ratio {live / live_floor:.2f}"
    harness.report("writes of a live update", said, ratio=live / live_floor)
    said = f"{started:.1f} s; at least {lowest} VMs available during the update"
    harness.report("from 0 to all VMs ready", said, ready_s=started, lowest=lowest)


async def update(api: Api, vms: int, memory: str, steps: Sequence[Json] = ()) -> tuple[float, int]:
    spec = {"template": with_memory(memory), "updateStrategy": {"proactive": {"steps": list(steps)}}}
    await api.patch(POOLS, harness.NAMESPACE, NAME, {"spec": spec})
    return await updated(api, vms)


def with_memory(memory: str) -> Json:
    return {"spec": {"template": {"spec": {"domain": {"memory": {"guest": memory}}}}}}


async def updated(api: Api, vms: int) -> tuple[float, int]:
    """Returns the seconds until all VMs are updated and ready, and the lowest number of available VMs."""
    lowest = vms

    async def done() -> bool:
        nonlocal lowest
        document = await api.get(POOLS, harness.NAMESPACE, NAME)
        status = document.get("status") or {}
        counts = {status.get(name) for name in ("replicas", "readyReplicas", "updatedReplicas")}
        if status.get("observedGeneration") == document["metadata"]["generation"] and counts == {vms}:
            return True
        lowest = min(lowest, status.get("availableReplicas", 0))
        return False

    return await harness.poll(done, every_seconds=0.1), lowest


async def bare(api: Api, wave: int) -> float:
    """Returns the seconds to patch and restart every VM in waves."""
    names = [vm["metadata"]["name"] for vm in await listed(api, VMS)]
    seconds = 0.0
    for start in range(0, len(names), wave):
        restarted = names[start : start + wave]

        async def restart(name: str) -> None:
            await api.patch(VMS, harness.NAMESPACE, name, {"spec": with_memory("256Mi")["spec"]})
            await api.delete(VMIS, harness.NAMESPACE, name)

        async def all_ready(wanted: frozenset[str] = frozenset(restarted)) -> bool:
            return wanted <= await ready(api)

        seconds += await harness.call_all(restart, restarted) + await harness.poll(all_ready, every_seconds=0.2)
    return seconds


def with_a_socket(document: Json) -> Json:
    domain = document["spec"]["template"]["spec"]["template"]["spec"]["domain"]
    domain["cpu"] = {"sockets": 1, "cores": 1, "threads": 1}
    return document


def with_sockets(sockets: int) -> Json:
    return {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": sockets}}}}}}


async def writes_of_live_update(api: Api, vms: int) -> int:
    """Returns how many writes the API server gets while a pool gives its running VMs another socket."""
    before, uids = await writes(api), await runs(api)
    await api.patch(POOLS, harness.NAMESPACE, NAME, {"spec": {"template": with_sockets(2)}})
    await updated(api, vms)
    await have_sockets(api, vms, 2)
    after = await writes(api)
    assert await runs(api) == uids, "a VM has restarted"
    return after - before


async def writes_of_bare_live_update(api: Api, vms: int) -> int:
    before, names = await writes(api), [vm["metadata"]["name"] for vm in await listed(api, VMS)]

    async def patch(name: str) -> None:
        await api.patch(VMS, harness.NAMESPACE, name, with_sockets(3))

    await harness.call_all(patch, names)
    await have_sockets(api, vms, 3)
    return await writes(api) - before


async def have_sockets(api: Api, vms: int, sockets: int) -> None:
    async def done() -> bool:
        statuses = [vmi.get("status") or {} for vmi in await listed(api, VMIS)]
        shown = [each for each in statuses if at(each, "currentCPUTopology", "sockets") == sockets]
        return len(shown) == vms and all(at(each, "migrationState", "completed") for each in shown)

    await harness.poll(done, every_seconds=0.5)


async def runs(api: Api) -> set[str]:
    """Returns the UIDs of the VMIs."""
    return {vmi["metadata"]["uid"] for vmi in await listed(api, VMIS)}


async def writes(api: Api) -> int:
    """Returns the number of the writes that the API server has accepted, but for Leases."""
    lines = (await api.text("/metrics")).splitlines()
    found = [match for line in lines if (match := WRITES.match(line)) and match[1] != "leases"]
    return round(sum(float(match[2]) for match in found))


async def ready(api: Api) -> set[str]:
    """Returns the names of VMs whose VMI runs with the new memory."""
    up = (vmi for vmi in await listed(api, VMIS) if vmi.get("status", {}).get("phase") == "Running")
    return {vmi["metadata"]["name"] for vmi in up if vmi["spec"]["domain"]["memory"]["guest"] == "256Mi"}


async def listed(api: Api, resource: Resource) -> list[Json]:
    return [each async for items, _ in api.pages(resource, harness.NAMESPACE) for each in items]


def main() -> None:
    options = harness.parse_options(__doc__, dir=None, vms=1000)
    with harness.stack(options.dir) as directory:
        asyncio.run(run(directory, options.vms))


if __name__ == "__main__":
    main()
