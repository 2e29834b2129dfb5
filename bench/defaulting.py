"""What defaulting costs, as ratios against bare libvirt in the same run.

    python -m bench.defaulting [--rounds 20] [--memory 10000]

The floor is libvirt alone: the XML documents that the service gives it for one VM, defined and dumped in the same order
and undefined at the end, in a process that does nothing else. Absolute times move with the machine and its other work;
rounds of floor and service alternate, so that both see the same weather.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from defaulter.contract import DEFAULTS_PATH

Json = dict[str, Any]
JSON = {"Content-Type": "application/json"}
_SERIAL = count()


def vm(disks: int, nics: int, *, known: bool) -> Json:
    """A VM of a shape that was seen before, or of one that never was: another amount of memory is another shape."""
    index = next(_SERIAL)
    names, networks = [f"disk{i}" for i in range(disks)], [f"net{i}" for i in range(nics)]
    domain = {
        "memory": {"guest": "128Mi" if known else f"{131072 + index}Ki"},
        "devices": {
            "disks": [{"name": name, "disk": {"bus": "virtio"}} for name in names],
            "interfaces": [{"name": name, "masquerade": {}} for name in networks],
            "rng": {},
        },
    }
    spec = {
        "domain": domain,
        "volumes": [{"name": name, "dataVolume": {"name": f"{name}-{index}"}} for name in names],
        "networks": [{"name": name, "pod": {}} for name in networks],
    }
    metadata = {"name": f"vm-{index}", "namespace": "bench"}
    spec = {"runStrategy": "Always", "template": {"spec": spec}}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": spec}


class Floor:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, document: Json, times: int, threads: int = 1) -> tuple[list[float], float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(
            json.dumps({"document": document, "times": times, "threads": threads}), file=self._process.stdin, flush=True
        )
        answer = json.loads(self._process.stdout.readline())
        return answer["seconds"], answer["total"]


@contextmanager
def floor() -> Iterator[Floor]:
    command = [sys.executable, "-m", "bench.floor"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield Floor(process)
    finally:
        process.communicate()


@contextmanager
def service() -> Iterator[tuple[str, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "POOLHOUSE_LISTEN": f"127.0.0.1:{port}", "POOLHOUSE_DEADLINE_SECONDS": "30"}
    command = [sys.executable, "-m", "defaulter.main"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


class Client:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def ready(self) -> None:
        while True:
            try:
                async with self._session.get(f"{self._url}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)

    async def ask(self, body: bytes) -> float:
        begun = time.perf_counter()
        async with self._session.post(self._url + DEFAULTS_PATH, data=body, headers=JSON) as answer:
            content = await answer.read()
        assert answer.status == 200, content
        return time.perf_counter() - begun

    async def many(self, bodies: list[bytes], at_once: int) -> float:
        """Seconds for all of them, so many on their way at a time."""
        waiting = iter(bodies)

        async def one_after_another() -> None:
            for body in waiting:
                await self.ask(body)

        begun = time.perf_counter()
        await asyncio.gather(*(one_after_another() for _ in range(at_once)))
        return time.perf_counter() - begun


def shown(seconds: list[float]) -> tuple[float, float]:
    ordered = sorted(seconds)
    return statistics.median(ordered) * 1000, ordered[int(len(ordered) * 0.99)] * 1000


def encoded(document: Json) -> bytes:
    return json.dumps(document).encode()


async def latencies(client: Client, bare: Floor, rounds: int, disks: int, nics: int) -> None:
    times: dict[str, list[float]] = {"bare libvirt": [], "service, new shape": [], "service, known shape": []}
    await client.many([encoded(vm(disks, nics, known=True)) for _ in range(20)], 4)
    for _ in range(rounds):
        times["bare libvirt"] += bare.run(vm(disks, nics, known=False), 20)[0]
        for known in (False, True):
            name = "service, known shape" if known else "service, new shape"
            times[name] += [await client.ask(encoded(vm(disks, nics, known=known))) for _ in range(20)]
    base, base_tail = shown(times["bare libvirt"])
    print(f"\n{disks} disks, {nics} NICs{'':14} p50 ms   p99 ms   p50 ratio  p99 ratio")
    for name, found in times.items():
        middle, tail = shown(found)
        print(f"  {name:24} {middle:7.2f} {tail:8.2f} {middle / base:10.2f} {tail / base_tail:10.2f}")


async def throughput(client: Client, bare: Floor, requests: int) -> None:
    print(f"\n{requests} VMs of 2 disks and 1 NIC   bare/s   new shape/s  ratio   known shape/s  ratio")
    for at_once in (1, 10, 50):
        _, seconds = bare.run(vm(2, 1, known=False), requests, threads=at_once)
        rate = requests / seconds
        found = []
        for known in (False, True):
            bodies = [encoded(vm(2, 1, known=known)) for _ in range(requests)]
            found.append(requests / await client.many(bodies, at_once))
        print(
            f"  {at_once:3} at once {'':16} {rate:7.0f} {found[0]:12.0f} {found[0] / rate:7.2f}"
            f" {found[1]:14.0f} {found[1] / rate:7.2f}"
        )


def resident(pid: int) -> dict[str, float]:
    """MB of the service and of each of its workers."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found[f"worker {child}"] = _megabytes(int(child))
    return {"service": _megabytes(pid), **found}


def _megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def memory(client: Client, pid: int, requests: int) -> None:
    before = resident(pid)
    await client.many([encoded(vm(2, 1, known=False)) for _ in range(requests)], 8)
    after = resident(pid)
    print(f"\nresident MB before and after {requests} VMs of new shapes")
    print("  before:", ", ".join(f"{name} {size:.0f}" for name, size in before.items()))
    print("  after: ", ", ".join(f"{name} {size:.0f}" for name, size in after.items()))


async def run(rounds: int, requests: int) -> None:
    with floor() as bare, service() as (url, pid):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            client = Client(session, url)
            await client.ready()
            await latencies(client, bare, rounds, 2, 1)
            await latencies(client, bare, rounds, 16, 8)
            await throughput(client, bare, 400)
            if requests:
                await memory(client, pid, requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--memory", type=int, default=0, metavar="REQUESTS")
    options = parser.parse_args()
    asyncio.run(run(options.rounds, options.memory))


if __name__ == "__main__":
    main()
