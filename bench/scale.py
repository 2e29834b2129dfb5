"""What many pools cost one controller: 200 pools of 50 VMs, and their runs.

    python -m bench.scale [--kubeconfig FILE] [--pools 200] [--vms 50]

Measured are the time until all VMs exist, as a ratio to a bare client that makes as many; the writes of ours for each
VM; the memory of the controllers with every VM and VMI in their stores; and what an event costs: changes of single VMs
are made one after the other, and the controllers' CPU time is divided by them. The same is done with a tenth of the
pools first: an event must not cost more because there are more of other VMs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import aiohttp

from bench.pool import NAMESPACE, all_of, bare, cluster, controllers, manifest, prepare, resident
from controllers.main import CONNECTIONS
from controllers.pool.stores import POOLS
from runtime.api import Api
from runtime.errors import NotFound
from runtime.resource import VMIS, VMS

EVENTS = 300
SETTLE_SECONDS = 8.0
DEADLINE_SECONDS = 900
MEMORY_AIM = 300
REQUESTS = re.compile(r'kubevirt_poolhouse_api_requests_total\{code="2\d\d",resource="(\w+)",verb="(\w+)"\} (\S+)')
READS = ("get", "list", "watch")


async def run(kubeconfig: Path, pools: int, vms: int) -> None:
    async with await Api.connect(kubeconfig, user_agent="bench", max_connections=CONNECTIONS + 1) as api:
        await prepare(api)
        floor, _ = await bare(api, 1000)
        floor_vm = floor / 1000
        few = max(1, pools // 10)
        async with controllers(kubeconfig) as at:
            idle = resident(at.pid)[0]
            took_few = await grown(api, 0, few, vms)
            cost_few = await event_cost(api, at.pid)
            took = took_few + await grown(api, few, pools, vms)
            total = pools * vms
            alone = floor_vm * total
            print(f"\n{pools} pools of {vms} VMs in one controller")
            say("seconds until all VMs exist: bare, pools", f"{alone:8.2f} {took:8.2f}   ratio {took / alone:5.2f}")
            for (verb, resource), count in (await written(at.url)).most_common():
                say(f"{verb} {resource}, for each VM", f"{count / total:8.2f}")
            say("resident MB with the VMs", f"{resident(at.pid)[0]:8.0f}")
            await guests(api)
            cost = await event_cost(api, at.pid)
            now, most = resident(at.pid)
            say("resident MB: idle, with their VMIs, at most", f"{idle:8.0f} {now:8.0f} {most:8.0f}   aim {MEMORY_AIM}")
            ratio = cost / cost_few if cost_few else float("nan")
            what = f"CPU ms for an event: {few * vms} VMs, {total} VMs"
            say(what, f"{cost_few:8.2f} {cost:8.2f}   ratio {ratio:5.2f}")


def say(what: str, measured: str) -> None:
    print(f"  {what:48} {measured}", flush=True)


async def grown(api: Api, have: int, wanted: int, vms: int) -> float:
    """Seconds until the VMs of so many pools exist."""
    begun = time.perf_counter()
    await all_of(lambda document: _create(api, document), [manifest(f"p{n}", vms) for n in range(have, wanted)])
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await _count(api) < wanted * vms:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return time.perf_counter() - begun


async def _create(api: Api, document: dict[str, object]) -> None:
    await api.create(POOLS, document)


async def _count(api: Api) -> int:
    answer = await api.request("GET", VMS.path(NAMESPACE), query={"limit": "1"})
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount") or 0)


async def guests(api: Api) -> None:
    """A run for every VM, as KubeVirt makes them."""
    documents = []
    async for items, _ in api.pages(VMS, NAMESPACE):
        for vm in items:
            owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "controller": True}
            owner |= {key: vm["metadata"][key] for key in ("name", "uid")}
            labels = vm["spec"]["template"]["metadata"]["labels"]
            metadata = {"namespace": NAMESPACE, "name": owner["name"], "labels": labels, "ownerReferences": [owner]}
            kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata}
            documents.append({**kind, "spec": vm["spec"]["template"]["spec"]})

    async def create(document: dict[str, object]) -> None:
        await api.create(VMIS, document)

    await all_of(create, documents)


async def event_cost(api: Api, pid: int) -> float:
    """CPU milliseconds of the controllers for one change of one VM."""
    await asyncio.sleep(SETTLE_SECONDS)
    quiet = cpu(pid)
    begun = time.perf_counter()
    await asyncio.sleep(2)
    per_second = (cpu(pid) - quiet) / (time.perf_counter() - begun)
    before, begun = cpu(pid), time.perf_counter()
    for number in range(EVENTS):
        change = {"metadata": {"labels": {"seen": str(number)}}}
        await api.patch(VMS, NAMESPACE, f"p{number % 10}-{number % 40 + 1}", change)
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    spent = cpu(pid) - before - per_second * (time.perf_counter() - begun)
    return max(0.0, spent) / EVENTS * 1000


def cpu(pid: int) -> float:
    """Seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def written(url: str) -> Counter[tuple[str, str]]:
    """Writes of the controllers that were accepted, by verb and resource."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        text = await answer.text()
    found: Counter[tuple[str, str]] = Counter()
    for resource, verb, count in REQUESTS.findall(text):
        if verb not in READS:
            found[verb, resource] += int(float(count))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--pools", type=int, default=200)
    parser.add_argument("--vms", type=int, default=50)
    options = parser.parse_args()
    with cluster(options.kubeconfig) as kubeconfig, suppress(NotFound):
        asyncio.run(run(kubeconfig, options.pools, options.vms))


if __name__ == "__main__":
    main()
