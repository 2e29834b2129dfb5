"""Measures `/mutate` for a new VM, as a ratio to a FastAPI app that echoes the same bodies, and admission on a stack.

    python -m tests.bench.admission [--seconds 0.5] [--rounds 9] [--at-once 1 10 50] [--dir DIR] [--batches 8]
                                    [--vms 1000] [--noisy 16] [--disks 64]

Turns of each side alternate, and a ratio is the median of the ratios of neighbouring turns, so that a slow moment of
the machine meets both sides. Processor time stands beside the wall time, because other processes disturb it less.

1. The servers, without a cluster: a fake defaulter sends a fixed response at once. A known shape needs no call to it.
   `2 replicas` are two processes that get half of the connections each, like two Pods of the webhook.
2. Ordinary VMs, 100 creates a second, in batches of 50: without admission, of a known shape, and of a new shape each.
3. The same creates while another namespace's clients, `--noisy` of them, ask for VMs of `--disks` disks, each of
   another shape, without a pause.
4. A pool from 0 to `--vms` with admission and defaulting, as a ratio to the bare writes without them.

`--rounds 0` leaves the first part out, `--batches 0` the second and third, and `--vms 0` the fourth.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import uvicorn
import uvloop

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import DEFAULTING, DISABLED, UNDEFAULTED
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import VMS
from poolhouse.service import lifecycle
from tests.bench.admission_servers import ECHO, OF_KNOWN, SERVERS, bench, echo, serve_mutate
from tests.bench.harness import (
    connect,
    cpu_seconds_of_tree,
    document,
    new_namespace,
    parse_options,
    percentile,
    prepare,
    report,
    section,
    stack,
)
from tests.bench.pool import WORKLOADS, bare, scaled
from tests.builders import vm_spec, vmi_spec

CREATES_PER_SECOND = 100
BATCH = 50
NOISE = "noise"
"""the argument with which this module starts the noisy clients"""
WITHOUT = ("engine",)
POOL = WORKLOADS[0]


@dataclass(frozen=True)
class Services:
    """The processes of the webhook and the defaulter, without the defaulter's workers that have ended."""

    pids: tuple[int, ...]

    @classmethod
    def of(cls, directory: Path) -> "Services":
        status = json.loads((directory / "status.json").read_text())
        return cls(tuple(each["pid"] for each in status["parts"] if each["name"] in ("webhook", "defaulter")))

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds_of_tree, self.pids))


def shape(
    name: str, namespace: str, memory: int, disks: int = 2, nics: int = 1, labels: Mapping[str, str] | None = None
) -> Json:
    """Returns a halted VM, whose shape is another one with another memory."""
    volumes = {f"disk-{number}": {"emptyDisk": {"capacity": "1Mi"}} for number in range(disks)}
    spec = vmi_spec(volumes, [f"nic-{number}" for number in range(nics)], f"{131072 + memory}Ki")
    return document(VMS, name, vm_spec(spec, runStrategy="Halted"), namespace, labels=labels or {})


@dataclass
class Batch:
    seconds: list[float]
    undefaulted: int
    cpu_ms: float
    """processor time of webhook and defaulter for a create"""


async def create_batch(api: Api, services: Services, vms: Sequence[Json]) -> Batch:
    """Creates VMs at `CREATES_PER_SECOND`, whether or not earlier ones are stored."""
    batch, before = Batch([], 0, 0.0), services.cpu_seconds()

    async def create(vm: Json, start: float) -> None:
        await asyncio.sleep(start - time.perf_counter())
        began = time.perf_counter()
        stored = await api.create(VMS, vm)
        batch.seconds.append(time.perf_counter() - began)
        domain = stored["spec"]["template"]["spec"]["domain"]
        annotations = stored["metadata"].get("annotations") or {}
        batch.undefaulted += UNDEFAULTED in annotations or "uuid" not in domain.get("firmware", {})

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, vm in enumerate(vms):
            group.create_task(create(vm, begin + number / CREATES_PER_SECOND))
    batch.cpu_ms = (services.cpu_seconds() - before) / len(vms) * 1000
    return batch


BARE, KNOWN, NEW = "without admission", "known shape", "new shape"
_SERIAL = count()


def batch_of(kind: str, namespace: str) -> list[Json]:
    labels = {DEFAULTING: DISABLED} if kind == BARE else {}
    numbers = [next(_SERIAL) for _ in range(BATCH)]
    return [shape(f"vm-{each}", namespace, each if kind == NEW else 0, labels=labels) for each in numbers]


async def alternate(api: Api, services: Services, namespace: str, rounds: int) -> dict[str, list[Batch]]:
    found: dict[str, list[Batch]] = {BARE: [], KNOWN: [], NEW: []}
    for number in range(rounds + 1):
        for kind, batches in found.items():
            batch = await create_batch(api, services, batch_of(kind, namespace))
            if number:  # the first round warms up
                batches.append(batch)
    return found


def _report_batches(kind: str, batches: Sequence[Batch], bare: Sequence[Batch], *, with_cpu: bool = True) -> None:
    """What admission adds: the median of the differences of neighbouring batches at p50, and the difference of all
    creates at p99, for which a batch is too small."""
    medians = [
        (statistics.median(each.seconds), statistics.median(other.seconds))
        for each, other in zip(batches, bare, strict=True)
    ]
    added_p50 = statistics.median(each - other for each, other in medians) * 1000
    ratio = statistics.median(each / other for each, other in medians)
    p99, p99_of_bare = (percentile([s for each in side for s in each.seconds], 99) * 1000 for side in (batches, bare))
    cpu = statistics.median(each.cpu_ms for each in batches)
    p50 = statistics.median(each for each, _ in medians) * 1000
    missed = sum(each.undefaulted for each in batches)
    added = (
        "" if kind == BARE else f", adds {added_p50:.1f} ms at p50 = {ratio:.2f} and {p99 - p99_of_bare:.1f} ms at p99"
    )
    measured, figures = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms{added}", {"p50_ms": p50, "p99_ms": p99}
    if kind != BARE:
        figures |= {"ratio": ratio, "added_p50_ms": added_p50, "added_p99_ms": p99 - p99_of_bare}
        measured += f"; {missed} without defaults"
        if with_cpu:
            figures["cpu_ms"] = cpu
            measured += f"; CPU of webhook and defaulter {cpu:.2f} ms"
    report(kind, measured, **figures)


async def make_noise(kubeconfig: Path, namespace: str, clients: int, disks: int) -> None:
    """Asks for large VMs, each of another shape, until the process is ended. Nothing is stored. Prints a line after the
    first answers."""
    numbers = count()
    async with await connect(kubeconfig, clients) as api:

        async def one_client() -> None:
            while True:
                number = next(numbers)
                if number == 2 * clients:
                    print("busy", flush=True)
                with suppress(ApiError):
                    await api.create(VMS, shape(f"noise-{number}", namespace, number, disks, 8), dry_run=True)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(one_client())


@asynccontextmanager
async def noise(kubeconfig: Path, namespace: str, clients: int, disks: int) -> AsyncIterator[None]:
    """Runs the noisy clients in a process of their own, so that they do not delay the measuring client."""
    arguments = [NOISE, str(kubeconfig), namespace, str(clients), str(disks)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.admission", *arguments), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline(), "the noisy clients ended"
        yield
        assert process.returncode is None, "the noisy clients ended"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def creates(directory: Path, batches: int, clients: int, disks: int) -> None:
    kubeconfig = directory / "kubeconfig"
    services = Services.of(directory)
    async with await connect(kubeconfig) as api:
        await prepare(api, VMS)
        async with new_namespace(api) as quiet, new_namespace(api) as busy:
            idle = await alternate(api, services, quiet, batches)
            section(f"{CREATES_PER_SECOND} creates a second, {batches} batches of {BATCH}")
            for kind, found in idle.items():
                _report_batches(kind, found, idle[BARE])
            async with noise(kubeconfig, busy, clients, disks):
                noisy = await alternate(api, services, quiet, batches)
            section(f"the same beside {clients} clients with VMs of {disks} disks")
            for kind, found in noisy.items():
                _report_batches(kind, found, noisy[BARE], with_cpu=False)  # the clients' VMs use the services too


async def pool_with_admission(directory: Path, size: int) -> None:
    kubeconfig = directory / "kubeconfig"
    services = Services.of(directory)

    def documents(size: int) -> list[Json]:
        made = POOL.documents(size)
        for each in made:
            each["metadata"].setdefault("labels", {})[DEFAULTING] = DISABLED
        return made

    async with await connect(kubeconfig) as api:
        await prepare(api, VMS, POOL.resource)
        pairs, cpu = [], []
        for name in ("bench-0", "bench-1", "bench-2"):
            floor, _ = await bare(api, replace(POOL, documents=documents), size)
            before = services.cpu_seconds()
            ours, _ = await scaled(api, POOL, size, name)
            pairs.append((floor, ours))
            cpu.append((services.cpu_seconds() - before) / size * 1000)
    section(f"a pool of {size} with admission and defaulting")
    floor, ours = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    ratio, of_vm = statistics.median(ours / floor for floor, ours in pairs), statistics.median(cpu)
    measured = f"bare {floor:.2f} s, poolhouse {ours:.2f} s, ratio {ratio:.2f}"
    report(f"0 -> {size}", f"{measured}, CPU of webhook and defaulter {of_vm:.2f} ms a VM", ratio=ratio, cpu_ms=of_vm)


def main() -> None:
    if sys.argv[1:2] == [NOISE]:
        _, _, kubeconfig, namespace, clients, disks = sys.argv
        uvloop.run(make_noise(Path(kubeconfig), namespace, int(clients), int(disks)))
        return
    if sys.argv[1:] and sys.argv[1] in SERVERS:
        host, _, port = os.environ["POOLHOUSE_LISTEN"].partition(":")
        if sys.argv[1] != ECHO:
            sys.exit(lifecycle.run(lambda: serve_mutate(host, int(port), remembers=sys.argv[1] == OF_KNOWN)))
        app = f"tests.bench.admission_servers:{echo.__name__}"
        uvicorn.run(app, factory=True, host=host, port=int(port), log_level="error", access_log=False)
        return
    options = parse_options(
        __doc__, seconds=0.5, rounds=9, at_once=[1, 10, 50], dir=None, batches=8, vms=1000, noisy=16, disks=64
    )
    if options.rounds:
        uvloop.run(bench(options.seconds, options.rounds, options.at_once))
    if options.batches or options.vms:
        with stack(options.dir, without=WITHOUT) as directory:
            if options.batches:
                uvloop.run(creates(directory, options.batches, options.noisy, options.disks))
            if options.vms:
                uvloop.run(pool_with_admission(directory, options.vms))


if __name__ == "__main__":
    main()
