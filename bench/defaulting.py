"""Measures the defaulter, as ratios to bare libvirt.

    python -m bench.defaulting [--rounds 20]

A separate process with bare libvirt defines, dumps and undefines the same XML documents as the defaulter. The VMs have
either a new shape, or a shape that the defaulter has cached.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from apimachinery.unstructured import Json
from bench.harness import call_all, document, parse_options, percentile, report, section, service, vmi_spec
from defaulter.contract import DEFAULTS_PATH
from runtime.resource import VMS

JSON = {"Content-Type": "application/json"}
BARE_LIBVIRT = "bare-libvirt"
_SERIAL = count()


def vm(disks: int, nics: int, *, known: bool) -> Json:
    """Returns a VM of a known or a new shape. VMs with different amounts of memory have different shapes."""
    index = next(_SERIAL)
    volumes = {f"disk{i}": {"dataVolume": {"name": f"disk{i}-{index}"}} for i in range(disks)}
    nic_names = [f"net{i}" for i in range(nics)]
    spec = vmi_spec(volumes, nic_names, "128Mi" if known else f"{131072 + index}Ki")
    spec["domain"]["devices"]["rng"] = {}
    return document(VMS, f"vm-{index}", {"runStrategy": "Always", "template": {"spec": spec}})


# Bare libvirt, in a process of its own


class Recorder:
    """A libvirt connection that records the documents that it defines."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self.defined: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    @contextmanager
    def scratch(self) -> Iterator[Callable[[str], str]]:
        with self._host.scratch() as define:

            def recorded(text: str) -> str:
                self.defined.append(text)
                answer: str = define(text)
                return answer

            yield recorded


def bare_libvirt() -> None:
    """Reads lines of JSON `{"document", "times", "threads"}`, and writes the seconds of each replay."""
    from defaulter.defaulting import VMRequest, set_defaults
    from defaulter.domain import NAME, PLACEHOLDER_UUID
    from defaulter.driver import Libvirt
    from defaulter.kubevirt_defaults import ClusterConfig
    from defaulter.root_directories import environment
    from defaulter.settings import Settings
    from defaulter.worker import drop_privileges

    drop_privileges(*Settings.read({}).user)
    root = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    os.environ |= environment(root)
    host = Libvirt(root)

    def replay(texts: list[str]) -> float:
        begun = time.perf_counter()
        with host.scratch() as define:
            for text in texts:
                define(text)
        return time.perf_counter() - begun

    for line in sys.stdin:
        request = json.loads(line)
        recorder: Any = Recorder(host)
        set_defaults(VMRequest(request["document"]), ClusterConfig(), recorder)
        texts, threads = recorder.defined, request["threads"]
        uuid = texts[0].partition("<uuid>")[2].partition("</uuid>")[0] or PLACEHOLDER_UUID

        def replays(thread: int) -> list[float]:
            """Replays the documents with a domain per thread, as the defaulter uses a domain per worker."""
            other = [
                text.replace(uuid, f"{uuid[:-3]}{thread:03x}").replace(  # noqa: B023
                    f"<name>{NAME}</name>", f"<name>{NAME}-{thread}</name>"
                )
                for text in texts  # noqa: B023
            ]
            return [replay(other) for _ in range(request["times"] // threads)]  # noqa: B023

        begun = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            seconds = [second for share in pool.map(replays, range(threads)) for second in share]
        print(json.dumps({"seconds": seconds, "total": time.perf_counter() - begun}), flush=True)
    shutil.rmtree(root)


class BareLibvirt(subprocess.Popen[str]):
    """The process with bare libvirt: `with BareLibvirt() as bare: bare.replay(...)`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "bench.defaulting", BARE_LIBVIRT]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        super().__init__(command, **pipes, stderr=subprocess.DEVNULL, text=True)

    def replay(self, document: Json, times: int, threads: int = 1) -> tuple[list[float], float]:
        """Returns the seconds of each replay, and the total."""
        assert self.stdin is not None
        assert self.stdout is not None
        print(json.dumps({"document": document, "times": times, "threads": threads}), file=self.stdin, flush=True)
        answer = json.loads(self.stdout.readline())
        return answer["seconds"], answer["total"]


# The service


class Client:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url + DEFAULTS_PATH

    async def default(self, document: Json) -> float:
        body = json.dumps(document).encode()
        begun = time.perf_counter()
        async with self._session.post(self._url, data=body, headers=JSON) as answer:
            content = await answer.read()
        assert answer.status == 200, content
        return time.perf_counter() - begun


async def latencies(client: Client, bare: BareLibvirt, rounds: int, disks: int, nics: int) -> None:
    times: dict[str, list[float]] = {"bare libvirt": [], "service, new shape": [], "service, known shape": []}
    await call_all(client.default, [vm(disks, nics, known=True) for _ in range(20)], 4)
    for _ in range(rounds):
        times["bare libvirt"] += bare.replay(vm(disks, nics, known=False), 20)[0]
        for known in (False, True):
            name = "service, known shape" if known else "service, new shape"
            times[name] += [await client.default(vm(disks, nics, known=known)) for _ in range(20)]
    section(f"latency of a VM with {disks} disks and {nics} NICs")
    floor = [percentile(times["bare libvirt"], each) for each in (50, 99)]
    for name, found in times.items():
        p50, p99 = (percentile(found, each) for each in (50, 99))
        figures = {"p50_ratio": p50 / floor[0], "p99_ratio": p99 / floor[1], "p50_ms": p50 * 1000, "p99_ms": p99 * 1000}
        ratios = f"ratio {figures['p50_ratio']:.2f} and {figures['p99_ratio']:.2f}"
        report(name, f"p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms, {ratios}", **figures)


async def throughput(client: Client, bare: BareLibvirt, requests: int) -> None:
    section(f"throughput, {requests} VMs of 2 disks and 1 NIC")
    for at_once in (1, 10, 50):
        _, seconds = bare.replay(vm(2, 1, known=False), requests, threads=at_once)
        rate = requests / seconds
        new, known = [
            requests / await call_all(client.default, [vm(2, 1, known=shape) for _ in range(requests)], at_once)
            for shape in (False, True)
        ]
        report(
            f"{at_once} at once",
            f"bare {rate:.0f}/s, new shape {new:.0f}/s = {new / rate:.2f}, known {known:.0f}/s = {known / rate:.2f}",
            new_rate_ratio=new / rate,
            known_rate_ratio=known / rate,
        )


async def run(rounds: int) -> None:
    async with service("defaulter.main", POOLHOUSE_DEADLINE_SECONDS="30", POOLHOUSE_LOG_LEVEL="CRITICAL") as process:
        with BareLibvirt() as bare:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                client = Client(session, process.url)
                await latencies(client, bare, rounds, 2, 1)
                await latencies(client, bare, rounds, 16, 8)
                await throughput(client, bare, 400)


def main() -> None:
    if sys.argv[1:] == [BARE_LIBVIRT]:
        bare_libvirt()
        return
    asyncio.run(run(parse_options(__doc__, rounds=20).rounds))


if __name__ == "__main__":
    main()
