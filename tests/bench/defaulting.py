"""Measures the defaulter, as ratios to bare libvirt.

    python -m tests.bench.defaulting [--rounds 20] [--requests 100]

A separate process with bare libvirt, on the same file system, defines, dumps and undefines domains as virt-launcher
does for a VM: three times. The defaulter needs two of these defines. `same defines` is bare libvirt with these two. The
VMs have either a new shape, or a shape that the defaulter has cached. Turns of each side alternate, and a ratio is the
median of the ratios of neighbouring turns. Processor time stands beside the wall time, because other processes disturb
it less.
"""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from defaulter.contract import DEFAULTS_PATH
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.resource import VMS
from tests.bench.harness import (
    Process,
    call_all,
    cpu_seconds_of_tree,
    document,
    parse_options,
    percentile,
    report,
    section,
    service,
)
from tests.builders import vm_spec, vmi_spec

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
    return document(VMS, f"vm-{index}", vm_spec(spec))


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
    """Reads lines of JSON `{"document", "times", "threads", "defines"}`, and writes the seconds of each replay."""
    from defaulter.defaulting import VMRequest, set_defaults
    from defaulter.domain import NAME, PLACEHOLDER_UUID
    from defaulter.driver import Libvirt
    from defaulter.kubevirt_defaults import ClusterConfig
    from defaulter.root_directories import environment, scratch
    from defaulter.settings import Settings
    from defaulter.worker import drop_privileges

    drop_privileges(*Settings.read({}).user)
    root = Path(tempfile.mkdtemp(prefix="ph-", dir=scratch()))
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
        if request["defines"] > len(texts):  # virt-launcher's second define has the devices of its third
            texts = [*texts, *texts[-1:] * (request["defines"] - len(texts))]
        uuid = texts[0].partition("<uuid>")[2].partition("</uuid>")[0] or PLACEHOLDER_UUID

        def replays(thread: int) -> list[float]:
            """Replays the documents with a domain per thread, as the defaulter uses a domain per worker."""
            other = [
                text.replace(uuid, f"{uuid[:-3]}{thread:03x}").replace(  # noqa: B023
                    f"<name>{NAME}</name>", f"<name>{NAME}-{thread}</name>"
                )
                for text in texts  # noqa: B023
            ]
            return [replay(other) for _ in range(thread, request["times"], threads)]  # noqa: B023

        begun = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            seconds = [second for share in pool.map(replays, range(threads)) for second in share]
        print(json.dumps({"seconds": seconds, "total": time.perf_counter() - begun}), flush=True)
    shutil.rmtree(root)


class BareLibvirt(subprocess.Popen[str]):
    """The process with bare libvirt: `with BareLibvirt() as bare: bare.replay(...)`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.bench.defaulting", BARE_LIBVIRT]
        super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def replay(self, document: Json, times: int, threads: int = 1, defines: int = 3) -> tuple[list[float], float]:
        """Returns the seconds of each replay, and the total. At least `defines` domains are defined in each."""
        assert self.stdin is not None
        assert self.stdout is not None
        request = {"document": document, "times": times, "threads": threads, "defines": defines}
        print(json.dumps(request), file=self.stdin, flush=True)
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


BARE, SAME, NEW, KNOWN = "bare libvirt", "bare libvirt, same defines", "service, new shape", "service, known shape"
TURN = 20


@dataclass(frozen=True)
class Turn:
    seconds: list[float]
    cpu_seconds: float
    """for each VM"""


async def latencies(client: Client, bare: BareLibvirt, process: Process, rounds: int, disks: int, nics: int) -> None:
    turns: dict[str, list[Turn]] = {name: [] for name in (BARE, SAME, NEW, KNOWN)}
    bare.replay(vm(disks, nics, known=False), 1)  # probes QEMU
    await call_all(client.default, [vm(disks, nics, known=True) for _ in range(TURN)], 4)
    for _ in range(rounds):
        for name, found in turns.items():
            pid = bare.pid if name in (BARE, SAME) else process.pid
            before = cpu_seconds_of_tree(pid)
            if name in (BARE, SAME):
                seconds = bare.replay(vm(disks, nics, known=False), TURN, defines=3 if name == BARE else 0)[0]
            else:
                seconds = [await client.default(vm(disks, nics, known=name == KNOWN)) for _ in range(TURN)]
            found.append(Turn(seconds, (cpu_seconds_of_tree(pid) - before) / TURN))
    section(f"latency of a VM with {disks} disks and {nics} NICs")
    _report_turns(turns)


def _report_turns(turns: dict[str, list[Turn]]) -> None:
    """Reports the latency and the CPU time of each client, and their ratios to those of libvirt alone."""
    p99_of_bare = percentile([second for each in turns[BARE] for second in each.seconds], 99)
    for name, found in turns.items():
        p50, p99 = (percentile([second for each in found for second in each.seconds], at) for at in (50, 99))
        pairs = list(zip(found, turns[BARE], strict=True))
        ratio = statistics.median(statistics.median(a.seconds) / statistics.median(b.seconds) for a, b in pairs)
        cpu_ms = statistics.mean(each.cpu_seconds for each in found) * 1000
        cpu_ratio = cpu_ms / statistics.mean(each.cpu_seconds for each in turns[BARE]) / 1000
        measured = f"p50 {p50 * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms, ratio {ratio:.2f} and {p99 / p99_of_bare:.2f}"
        figures = {"ratio": ratio, "p99_ratio": p99 / p99_of_bare, "p50_ms": p50 * 1000, "p99_ms": p99 * 1000}
        measured += f", CPU {cpu_ms:.2f} ms = {cpu_ratio:.2f}"
        report(name, measured, **figures, cpu_ms=cpu_ms, cpu_ratio=cpu_ratio)


async def throughput(client: Client, bare: BareLibvirt, rounds: int, requests: int) -> None:
    section(f"throughput, {rounds} turns of {requests} VMs of 2 disks and 1 NIC, median")
    for at_once in (1, 10, 50):
        rates: dict[str, list[float]] = {BARE: [], NEW: [], KNOWN: []}
        for _ in range(rounds):
            rates[BARE].append(requests / bare.replay(vm(2, 1, known=False), requests, threads=at_once)[1])
            for name in (NEW, KNOWN):
                vms = [vm(2, 1, known=name == KNOWN) for _ in range(requests)]
                rates[name].append(requests / await call_all(client.default, vms, at_once))
        rate, new, known = (statistics.median(each) for each in rates.values())
        new_ratio, known_ratio = (
            statistics.median(ours / base for ours, base in zip(rates[name], rates[BARE], strict=True))
            for name in (NEW, KNOWN)
        )
        measured = (
            f"bare {rate:.0f}/s, new shape {new:.0f}/s = {new_ratio:.2f}, known {known:.0f}/s = {known_ratio:.2f}"
        )
        figures = {"bare_per_second": rate, "new_per_second": new, "known_per_second": known}
        report(f"{at_once} at once", measured, **figures, new_ratio=new_ratio, known_ratio=known_ratio)


async def run(rounds: int, requests: int) -> None:
    async with service("defaulter.main", POOLHOUSE_DEADLINE_SECONDS="30", POOLHOUSE_LOG_LEVEL="CRITICAL") as process:
        with BareLibvirt() as bare:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                client = Client(session, process.url)
                await latencies(client, bare, process, rounds, 2, 1)
                await latencies(client, bare, process, rounds, 16, 8)
                await throughput(client, bare, max(3, rounds // 4), requests)


def main() -> None:
    if sys.argv[1:] == [BARE_LIBVIRT]:
        bare_libvirt()
        return
    options = parse_options(__doc__, rounds=20, requests=100)
    asyncio.run(run(options.rounds, options.requests))


if __name__ == "__main__":
    main()
