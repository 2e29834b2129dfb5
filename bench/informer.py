"""What the runtime costs: a call against the same call by bare aiohttp and json, and a list into views against the same
pages parsed and thrown away. Memory is of a process of its own, after each step.

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
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from runtime.api import Api, Resource
from runtime.informer import PAGE, Informer

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

    @classmethod
    def of(cls, document: Json) -> Machine:
        metadata, labels = document["metadata"], document["metadata"]["labels"]
        return cls(
            metadata["namespace"],
            metadata["name"],
            metadata["uid"],
            metadata["resourceVersion"],
            metadata["ownerReferences"][0]["uid"],
            labels["pool"],
            labels["revision"],
            document["status"]["printableStatus"],
            document["status"]["ready"],
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


def serve(machines: int, ready: Connection) -> None:
    """A server that answers from memory, so that its own time is small."""
    one = json.dumps(machine(0)).encode()
    pages = {
        start: json.dumps(
            {
                "metadata": {
                    "resourceVersion": "100000",
                    "continue": str(start + PAGE) if start + PAGE < machines else "",
                },
                "items": [machine(number) for number in range(start, min(start + PAGE, machines))],
            }
        ).encode()
        for start in range(0, machines, PAGE)
    }

    async def many(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            stream = web.StreamResponse()
            await stream.prepare(request)
            await asyncio.Event().wait()
        return web.Response(body=pages[int(request.query.get("continue", 0))], content_type="application/json")

    async def single(request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.Response(body=one, content_type="application/json")

    async def run() -> None:
        application = web.Application()
        application.router.add_get(MACHINES.path(), many)
        application.router.add_route("*", "/one", single)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


def resident() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


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


async def timed(call: Callable[[], Awaitable[object]], calls: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU, of each call."""

    async def some() -> None:
        for _ in range(calls // AT_ONCE):
            await call()

    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return (time.perf_counter() - began) / calls, (time.process_time() - cpu) / calls


async def per_call(api: Api, calls: int, rounds: int) -> None:
    body = machine(0)
    async with aiohttp.ClientSession() as session:
        for method, sent in (("GET", None), ("POST", body)):

            async def bare(method: str = method, sent: Json | None = sent) -> None:
                data = None if sent is None else json.dumps(sent)
                async with session.request(method, api.host + "/one", data=data) as answer:
                    json.loads(await answer.read())

            async def ours(method: str = method, sent: Json | None = sent) -> None:
                await api.request(method, "/one", body=sent)

            pairs = [(await timed(bare, calls), await timed(ours, calls)) for _ in range(rounds)]
            base, cost = (statistics.median(pair[side][1] for pair in pairs) * 1e6 for side in (0, 1))
            ratio = statistics.median(pair[1][0] / pair[0][0] for pair in pairs)
            print(f"  {method:5} CPU {base:4.0f} us bare, {cost:4.0f} us ours ({cost / base:.2f}); time {ratio:.2f}")


async def bare_list(api: Api) -> None:
    more = ""
    async with aiohttp.ClientSession() as session:
        while True:
            url = f"{api.host}{MACHINES.path()}?limit={PAGE}" + (f"&continue={more}" if more else "")
            async with session.get(url) as answer:
                document = json.loads(await answer.read())
            more = document["metadata"]["continue"]
            if not more:
                return


async def per_list(api: Api, machines: int) -> None:
    gap = 0.0

    async def tick() -> None:
        nonlocal gap
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gap, last = max(gap, now - last), now

    await bare_list(api)
    before = resident()
    began = time.perf_counter()
    await bare_list(api)
    base = time.perf_counter() - began
    informer = Informer(
        api, MACHINES, Machine.of, indexes={"owner": lambda m: [m.owner], "pool": lambda m: [(m.namespace, m.pool)]}
    )
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run()), group.create_task(tick())]
        began = time.perf_counter()
        await informer.synced()
        took = time.perf_counter() - began
        for task in tasks:
            task.cancel()
    kept = resident() - before
    print(
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
       
        f"
         {machines:6} VMs into views: {took * 1000:5.0f} ms ({took / base:.2f} of parsing them), the loop stood still " f"for {gap * 1000:.0f} ms at most; {kept / machines * 1000:.2f} MB kept per 1,000; process {resident():.0f} MB"
    )


def measure(machines: int, calls: int, rounds: int) -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(machines, there), daemon=True)
    server.start()
    port = here.recv()

    async def run() -> None:
        async with await connect(port) as api:
            await per_list(api, machines)
            if calls:
                await per_call(api, calls, rounds)

    asyncio.run(run())
    server.kill()
    server.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for number, machines in enumerate(options.machines):
        # A process each: memory that was needed once is not given back.
        last = number == len(options.machines) - 1
        child = multiprocessing.get_context("spawn").Process(
            target=measure, args=(machines, options.calls if last else 0, options.rounds)
        )
        child.start()
        child.join()


if __name__ == "__main__":
    main()
