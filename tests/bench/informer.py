"""Measures the runtime: calls to the API server, lists into views, and several informers of the same objects.

    python -m tests.bench.informer [--vms 1000 10000] [--calls 3000] [--rounds 3]

The baseline of a call is the same call by aiohttp and json. The baseline of a list is fetching and parsing the same
pages. Three informers of the same objects run with three watches, and with a shared watch. A separate process runs for
each size, because freed memory stays resident.
"""

import asyncio
import gc
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp
from aiohttp import web

from controllers.shared.vm import VM, parse_vm
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer, shared_reflectors
from poolhouse.runtime.reflector import PAGE_SIZE, Reflector
from poolhouse.runtime.resource import VMS
from tests.bench.harness import Process, call_all, parse_options, report, section

AT_ONCE = 16


def vm(number: int) -> Json:
    """Returns a VM of about 6 KB, the size of KubeVirt's VMs."""
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


def pages(vms: int) -> dict[int, bytes]:
    """Returns the pages of the list, by the number of their first VM."""
    found = {}
    for start in range(0, vms, PAGE_SIZE):
        end = min(start + PAGE_SIZE, vms)
        metadata = {"resourceVersion": "100000", "continue": str(end) if end < vms else ""}
        found[start] = json.dumps({"metadata": metadata, "items": list(map(vm, range(start, end)))}).encode()
    return found


def serve(vms: int, port: Connection) -> None:
    """Runs a fake API server, which responds from memory, so that its own time is short."""
    one, many = json.dumps(vm(0)).encode(), pages(vms)

    async def list_or_watch(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await asyncio.Event().wait()
        return web.Response(body=many[int(request.query.get("continue", 0))], content_type="application/json")

    async def single(request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.Response(body=one, content_type="application/json")

    respond([web.get(VMS.path(), list_or_watch), web.route("*", "/one", single)], port)


def respond(routes: Iterable[web.AbstractRouteDef], port: Connection) -> None:
    """Runs a server for ever, and sends its port."""

    async def run() -> None:
        application = web.Application()
        application.add_routes(routes)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port.send(runner.addresses[0][1])
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


def resident_mb() -> float:
    gc.collect()
    return Process(os.getpid(), "").resident_mb()[0]


async def timed(call: Callable[[int], Awaitable[object]], calls: int) -> tuple[float, float]:
    """Returns the mean time and the mean CPU time of a call, in seconds."""
    cpu = time.process_time()
    seconds = await call_all(call, range(calls), AT_ONCE)
    return seconds / calls, (time.process_time() - cpu) / calls


async def measure_call(api: Api, method: str, body: Json | None, calls: int, rounds: int) -> None:
    async with aiohttp.ClientSession() as session:

        async def bare(_: int) -> None:
            data = None if body is None else json.dumps(body)
            async with session.request(method, api.host + "/one", data=data) as answer:
                json.loads(await answer.read())

        async def ours(_: int) -> None:
            await api.request(method, "/one", body=body)

        pairs = [(await timed(bare, calls), await timed(ours, calls)) for _ in range(rounds)]
    floor, cost = (statistics.median(pair[side][1] for pair in pairs) * 1e6 for side in (0, 1))
    ratio = statistics.median(pair[1][0] / pair[0][0] for pair in pairs)
    report(
        f"CPU time of a {method}",
        f"bare {floor:.0f} us, runtime {cost:.0f} us, ratio {cost / floor:.2f}; ratio of the time {ratio:.2f}",
        cpu_ratio=cost / floor,
        ratio=ratio,
    )


async def bare_list(api: Api) -> float:
    """Returns the seconds to fetch and parse every page."""
    began, following = time.perf_counter(), ""
    async with aiohttp.ClientSession() as session:
        while True:
            query = {"continue": following} if following else None
            async with session.get(api.host + VMS.path(), params=query) as answer:
                following = json.loads(await answer.read())["metadata"]["continue"]
            if not following:
                return time.perf_counter() - began


async def measure_list(api: Api, vms: int) -> None:
    blocked = 0.0

    async def tick() -> None:
        nonlocal blocked
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            blocked, last = max(blocked, now - last), now

    async def listed() -> Informer[VM]:
        indexes = {"owner": lambda vm: [vm.owner_uid], "pool": lambda vm: [(vm.namespace, vm.base_name)]}
        informer = Informer(api, VMS, parse_vm, indexes=indexes)
        await synced([informer], separate)
        return informer

    section(f"{vms} VMs")
    await bare_list(api)
    floor = await bare_list(api)
    ticking = asyncio.create_task(tick())
    began = time.perf_counter()
    first = await listed()
    seconds = time.perf_counter() - began
    ticking.cancel()
    ratio = seconds / floor
    report("into views", f"{seconds * 1000:.0f} ms, ratio to fetching and parsing {ratio:.2f}", ratio=ratio)
    resident = resident_mb()
    measured = f"{blocked * 1000:.0f} ms; {resident:.0f} MB resident"
    report("longest block of the event loop", measured, blocked_ms=blocked * 1000, resident_mb=resident)
    # The second list needs memory only for its views, because temporary memory is already resident from the first list.
    before, second = resident_mb(), await listed()
    views = (resident_mb() - before) / len(second.store) * 1000
    report("1,000 views", f"{views:.2f} MB", views_mb=views)
    assert len(first.store) == vms
    each, shared = [
        await synced([Informer(api, VMS, parse_vm) for _ in range(3)], reflectors)
        for reflectors in (separate, shared_reflectors)
    ]
    report(
        "CPU time of three informers",
        f"a watch each {each:.2f} s, one shared watch {shared:.2f} s",
        ratio=shared / each,
    )


def separate(informers: Iterable[Informer[VM]]) -> list[Reflector]:
    return [informer.reflector for informer in informers]


async def synced(informers: list[Informer[VM]], reflectors: Callable[[list[Informer[VM]]], list[Reflector]]) -> float:
    """Returns the CPU seconds until all informers are synced."""
    began = time.process_time()
    running = [asyncio.create_task(reflector.run()) for reflector in reflectors(informers)]
    for informer in informers:
        await informer.synced()
    seconds = time.process_time() - began
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return seconds


def measure(vms: int, calls: int, rounds: int) -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(vms, there), daemon=True)
    server.start()

    async def run() -> None:
        async with await connect(here.recv()) as api:
            await measure_list(api, vms)
            for method, body in (("GET", None), ("POST", vm(0))) if calls else ():
                await measure_call(api, method, body, calls, rounds)

    asyncio.run(run())
    server.kill()
    server.join()


def main() -> None:
    options = parse_options(__doc__, vms=[1000, 10_000], calls=3000, rounds=3)
    for vms in options.vms:
        calls = options.calls if vms == options.vms[0] else 0
        child = multiprocessing.get_context("spawn").Process(target=measure, args=(vms, calls, options.rounds))
        child.start()
        child.join()


if __name__ == "__main__":
    main()
