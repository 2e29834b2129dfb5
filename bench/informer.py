"""What the runtime costs: a call against the same call by bare aiohttp and json, and a list into views against the same
pages parsed and thrown away; and three views of the same objects, with a watch each and with one for all. Memory is
that of a process of its own.

    python -m bench.informer [--machines 1000 10000] [--calls 3000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from runtime.api import Api
from runtime.informer import Informer, shared_reflectors
from runtime.reflector import PAGE_SIZE, Reflector
from runtime.resource import Resource

Json = dict[str, Any]
MACHINES = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine", namespaced=False)
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Machine:
    """Ten facts, as a controller keeps them."""

    namespace: str
    name: str
    uid: str
    version: str
    owner: str
    pool: str
    revision: str
    phase: str
    ready: bool
    going: bool


def view(document: Json) -> Machine:
    metadata, status = document["metadata"], document["status"]
    return Machine(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        metadata["resourceVersion"],
        metadata["ownerReferences"][0]["uid"],
        metadata["labels"]["pool"],
        metadata["labels"]["revision"],
        status["printableStatus"],
        status["ready"],
        "deletionTimestamp" in metadata,
    )


def machine(number: int) -> Json:
    """About 6 KB, as KubeVirt's VMs are."""
    return {
        "metadata": {
            "namespace": "desktops",
            "name": f"pool-{number}",
            "uid": f"{number:08d}-0000-4000-8000-000000000000",
            "resourceVersion": str(number + 1),
            "labels": {"pool": "pool", "revision": "pool-1"},
            "ownerReferences": [{"kind": "VirtualMachinePool", "name": "pool", "uid": "pool-uid", "controller": True}],
        },
        "spec": {"devices": [{"name": f"disk-{n}", "disk": {"bus": "virtio"}, "text": "x" * 80} for n in range(40)]},
        "status": {"ready": True, "printableStatus": "Running"},
    }


def pages(machines: int) -> dict[int, bytes]:
    """Each page of the list, by its first."""
    made = {}
    for start in range(0, machines, PAGE_SIZE):
        end = min(start + PAGE_SIZE, machines)
        metadata = {"resourceVersion": "100000", "continue": str(end) if end < machines else ""}
        items = [machine(number) for number in range(start, end)]
        made[start] = json.dumps({"metadata": metadata, "items": items}).encode()
    return made


def serve(machines: int, ready: Connection) -> None:
    """A server that answers from memory, so that its own time is small."""
    one, many = json.dumps(machine(0)).encode(), pages(machines)

    async def several(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await asyncio.Event().wait()
        return web.Response(body=many[int(request.query.get("continue", 0))], content_type="application/json")

    async def single(request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.Response(body=one, content_type="application/json")

    async def run() -> None:
        application = web.Application()
        application.router.add_get(MACHINES.path(), several)
        application.router.add_route("*", "/one", single)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


async def connect(port: int) -> Api:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    with tempfile.NamedTemporaryFile("w") as file:
        json.dump(document, file)
        file.flush()
        return await Api.connect(Path(file.name), user_agent="bench")


def resident() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


async def timed(call: Callable[[], Awaitable[object]], calls: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU, of each call."""

    async def some() -> None:
        for _ in range(calls // AT_ONCE):
            await call()

    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return (time.perf_counter() - began) / calls, (time.process_time() - cpu) / calls


async def per_call(api: Api, method: str, body: Json | None, calls: int, rounds: int) -> None:
    async with aiohttp.ClientSession() as session:

        async def bare() -> None:
            data = None if body is None else json.dumps(body)
            async with session.request(method, api.host + "/one", data=data) as answer:
                json.loads(await answer.read())

        async def ours() -> None:
            await api.request(method, "/one", body=body)

        pairs = [(await timed(bare, calls), await timed(ours, calls)) for _ in range(rounds)]
    base, cost = (statistics.median(pair[side][1] for pair in pairs) * 1e6 for side in (0, 1))
    ratio = statistics.median(pair[1][0] / pair[0][0] for pair in pairs)
    print(f"  {method:5} CPU {base:.0f} us bare, {cost:.0f} us ours, {cost / base:.2f} times; time {ratio:.2f} times")


async def bare_list(api: Api) -> float:
    """Seconds to fetch and parse every page."""
    began, more = time.perf_counter(), ""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(api.host + MACHINES.path(), params={"continue": more} if more else None) as answer:
                more = json.loads(await answer.read())["metadata"]["continue"]
            if not more:
                return time.perf_counter() - began


async def per_list(api: Api, machines: int) -> None:
    gap = 0.0

    async def tick() -> None:
        nonlocal gap
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gap, last = max(gap, now - last), now

    async def listed() -> Informer[Machine]:
        indexes = {"owner": lambda m: [m.owner], "pool": lambda m: [(m.namespace, m.pool)]}
        informer = Informer(api, MACHINES, view, indexes=indexes)
        running = asyncio.create_task(informer.run())
        await informer.synced()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return informer

    await bare_list(api)
    base = await bare_list(api)
    ticking = asyncio.create_task(tick())
    began = time.perf_counter()
    first = await listed()
    took = time.perf_counter() - began
    ticking.cancel()
    print(f"  {machines} VMs into views: {took * 1000:.0f} ms, {took / base:.2f} times what fetching and parsing takes")
    print(f"  the loop stood still for {gap * 1000:.0f} ms at most; the process has {resident():.0f} MB")
    # Of a second store: what the first list needed on the way is there already.
    before, second = resident(), await listed()
    print(f"  {(resident() - before) / len(second.store) * 1000:.2f} MB for each 1,000 views")
    assert len(first.store) == machines
    alone, together = await readers(api, separate), await readers(api, shared_reflectors)
    print(f"  three views of each: CPU {alone:.2f} s with a watch each, {together:.2f} s with one for all")


def separate(informers: Iterable[Informer[Machine]]) -> list[Reflector]:
    return [informer.reflector for informer in informers]


async def readers(api: Api, feeds: Callable[[list[Informer[Machine]]], list[Reflector]]) -> float:
    """CPU seconds until three have listed, as the parts of a controller do that keep views of the same objects."""
    informers = [Informer(api, MACHINES, view) for _ in range(3)]
    began = time.process_time()
    running = [asyncio.create_task(feed.run()) for feed in feeds(informers)]
    for informer in informers:
        await informer.synced()
    took = time.process_time() - began
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return took


def measure(machines: int, calls: int, rounds: int) -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(machines, there), daemon=True)
    server.start()

    async def run() -> None:
        async with await connect(here.recv()) as api:
            await per_list(api, machines)
            for method, body in (("GET", None), ("POST", machine(0))) if calls else ():
                await per_call(api, method, body, calls, rounds)

    asyncio.run(run())
    server.kill()
    server.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for machines in options.machines:
        # A process each: memory that was needed once is not given back.
        calls = options.calls if machines == options.machines[0] else 0
        child = multiprocessing.get_context("spawn").Process(target=measure, args=(machines, calls, options.rounds))
        child.start()
        child.join()


if __name__ == "__main__":
    main()
