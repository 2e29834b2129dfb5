"""Measures `poolhouse hardware fleet`: the report of all VMs of a cluster.

    python -m tests.bench.fleet [--vms 10000] [--rounds 3]

The baseline is fetching and parsing the same pages of VMs and VMIs. A fake API server responds from memory, so that its
own time is short.
"""

import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import aiohttp
from aiohttp import web

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.fleet import collect
from poolhouse.runtime.api import Api
from poolhouse.runtime.reflector import PAGE_SIZE
from poolhouse.runtime.resource import NAMESPACES, VMIS, VMS
from tests.bench.harness import parse_options, refuse_options, report, section
from tests.bench.informer import connect, respond
from tests.builders import vm_spec, vmi_spec

SPEC = vmi_spec({name: {"containerDisk": {"image": "guest"}} for name in ("root", "data")}, ["default"])
MANAGED = [
    {"manager": "virt-api", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {f"f:{n}": {} for n in range(200)}}}
]
"""an object of KubeVirt is about as large because of these"""


def metadata(number: int) -> Json:
    return {"namespace": f"team-{number % 50}", "name": f"vm-{number}", "managedFields": MANAGED}


def vm(number: int) -> Json:
    return {"metadata": metadata(number), "spec": vm_spec(SPEC)}


def vmi(number: int) -> Json:
    nic = {"name": "default", "mac": f"02:00:00:00:{number // 256:02x}:{number % 256:02x}", "infoSource": "domain"}
    return {
        "metadata": metadata(number),
        "spec": SPEC,
        "status": {"machine": {"type": "pc-q35-9.2"}, "interfaces": [nic]},
    }


def pages(items: list[Json]) -> Iterator[tuple[int, bytes]]:
    """Yields the pages of a list, each with the number of its first object."""
    for start in range(0, max(len(items), 1), PAGE_SIZE):
        following = str(start + PAGE_SIZE) if start + PAGE_SIZE < len(items) else ""
        page = {"metadata": {"resourceVersion": "1", "continue": following}, "items": items[start : start + PAGE_SIZE]}
        yield start, json.dumps(page).encode()


def serve(vms: int, port: Connection) -> None:
    namespaces = [{"metadata": {"name": f"team-{number}"}} for number in range(50)]
    lists = {VMS: [vm(n) for n in range(vms)], VMIS: [vmi(n) for n in range(vms)], NAMESPACES: namespaces}
    found = {resource.path(): dict(pages(items)) for resource, items in lists.items()}

    async def listed(request: web.Request) -> web.Response:
        known = found.get(request.path)
        if known is None:
            status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
            return web.json_response(status, status=404)
        return web.Response(body=known[int(request.query.get("continue", 0))], content_type="application/json")

    respond([web.get("/{path:.*}", listed)], port)


async def bare_lists(api: Api) -> int:
    """Fetches and parses the same pages. Returns the number of VMs and VMIs."""
    found = 0
    async with aiohttp.ClientSession() as session:
        for resource in (VMS, VMIS):
            following = "0"
            while following:
                async with session.get(api.host + resource.path(), params={"continue": following}) as answer:
                    page = json.loads(await answer.read())
                found, following = found + len(page["items"]), page["metadata"]["continue"]
    return found


async def measure(port: int, vms: int, rounds: int) -> None:
    floors, costs = [], []
    async with await connect(port) as api:
        for _ in range(rounds):
            began = time.perf_counter()
            assert await bare_lists(api) == 2 * vms
            floors.append(time.perf_counter() - began)
            began = time.perf_counter()
            rows, refused = await collect(api, Cluster(None, "default", everywhere=True))
            costs.append(time.perf_counter() - began)
            assert (len(rows), refused) == (vms, [])
            assert all(row["changes"] for row in rows)
    floor, cost = statistics.median(floors), statistics.median(costs)
    section(f"The report of {vms} VMs")
    report("fetching and parsing VMs and VMIs", f"{floor:.1f} s", seconds=floor)
    report("poolhouse hardware fleet", f"{cost:.1f} s, ratio {cost / floor:.1f}", ratio=cost / floor, seconds=cost)


def main() -> None:
    options = parse_options(__doc__, vms=10_000, rounds=3)
    if not options.vms or not options.rounds:
        refuse_options("--vms and --rounds must be at least 1")
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(options.vms, there), daemon=True)
    server.start()
    try:
        asyncio.run(measure(here.recv(), options.vms, options.rounds))
    finally:
        server.kill()
        server.join()


if __name__ == "__main__":
    main()
