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
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, cast

import uvicorn
import uvloop
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp

from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import DEFAULTING, DISABLED, UNDEFAULTED
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import VMS
from poolhouse.service import lifecycle
from poolhouse.service.server import serve
from tests.bench.harness import (
    Process,
    connect,
    cpu_seconds_of_tree,
    document,
    new_namespace,
    parse_options,
    percentile,
    prepare,
    report,
    section,
    service,
    stack,
    vmi_spec,
)
from tests.bench.pool import WORKLOADS, bare, scaled
from tests.webhook.builders import review
from tests.webhook.fake_defaulter import filled, with_identity

Rates = tuple[float, float, float]


def vm() -> Json:
    """Returns a VM of a pool, with two disks and a NIC."""
    volumes = {name: {"dataVolume": {"name": f"web-{name}"}} for name in ("disk-0", "disk-1")}
    spec = vmi_spec(volumes, ["nic-0"])
    spec["domain"]["machine"] = {"type": "q35"}
    metadata = {
        "labels": {f"example.com/label-{n}": "value" for n in range(5)},
        "ownerReferences": [controller_reference("kubevirt.io/v1", "VirtualMachinePool", "web", "u")],
        "managedFields": [{"manager": "controllers", "operation": "Update", "fieldsV1": {"f:spec": {".": {}}}}],
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    return document(VMS, "web-17", {"running": True, "template": template}, "default", **metadata)


# The servers


def echo() -> FastAPI:
    app = FastAPI()

    @app.get("/healthz")
    async def healthz() -> None: ...

    @app.post("/mutate")
    async def same(request: Request) -> Response:
        return Response(await request.body(), media_type="application/json")

    return app


@asynccontextmanager
async def mutate(*, remembers: bool) -> AsyncIterator[ASGIApp]:
    """Yields the webhook's app without an API server, because the admission of a VM needs none. Without `remembers`,
    each VM has an unknown shape."""
    from prometheus_client import CollectorRegistry

    from defaulter.contract import Defaulter, KnownShapes
    from poolhouse.runtime.circuit_breaker import CircuitBreaker
    from webhook.admission import Admission
    from webhook.app import create_app
    from webhook.defaulting import DefaultingHandler
    from webhook.hardware_drift import HardwareDrift
    from webhook.metrics import Metrics
    from webhook.parts import WebhookParts

    known_shapes = KnownShapes(monotonic) if remembers else None
    async with Defaulter(os.environ["DEFAULTER"], 2.0, known_shapes=known_shapes) as defaulter:
        defaulting = DefaultingHandler(defaulter, seed="s", budget_seconds=2, now=monotonic, breaker=CircuitBreaker())
        metrics = Metrics(CollectorRegistry(), ["VirtualMachine"])
        unused: Any = None
        admission = Admission(defaulting=defaulting, checks=(), drift=HardwareDrift(now=monotonic))
        yield create_app(WebhookParts(unused, admission, unused, unused, metrics))


async def serve_mutate(host: str, port: int, *, remembers: bool) -> None:
    async with mutate(remembers=remembers) as app:
        await serve(app, host, port)


ECHO, OF_KNOWN, OF_NEW = SERVERS = ("echo", "mutate-known", "mutate-new")
"""arguments with which this module starts a server"""


class FixedAnswer(asyncio.Protocol):
    """A defaulter that sends the same answer to every request."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if found and len(body) >= content_length(bytes(head)):
            self._received.clear()
            self._transport.write(self._answer)


# The client


def http_message(first_line: str, body: bytes) -> bytes:
    head = f"{first_line}\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def content_length(head: bytes) -> int:
    lengths = (line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(next(lengths, b"0"))


async def rates(urls: Sequence[str], request: bytes, at_once: int, seconds: float) -> Rates:
    """Returns requests per second, and p50 and p99 of the latency in milliseconds. The connections are shared evenly
    between the URLs."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def one_connection(url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        while (began := time.perf_counter()) < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())
            await reader.readexactly(content_length(head))
            times.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(at_once):
            group.create_task(one_connection(urls[number % len(urls)]))
    rate = len(times) / (time.perf_counter() - began)
    return rate, percentile(times, 50) * 1000, percentile(times, 99) * 1000


@dataclass(frozen=True)
class Turn:
    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """processor time of the servers for a request"""


async def turn(servers: Sequence[Process], request: bytes, at_once: int, seconds: float) -> Turn:
    before = sum(each.cpu_seconds() for each in servers)
    rate, p50, p99 = await rates([each.url for each in servers], request, at_once, seconds)
    return Turn(rate, p50, p99, (sum(each.cpu_seconds() for each in servers) - before) / (rate * seconds) * 1e6)


async def bench(seconds: float, rounds: int, connections: list[int]) -> None:
    new = vm()
    response = {"kind": "DefaultingResponse", "object": filled(with_identity(new, "s"), "s"), "warnings": []}
    answer = http_message("HTTP/1.1 200 OK", compact(response))
    server = await asyncio.get_running_loop().create_server(lambda: FixedAnswer(answer), "127.0.0.1", 0)
    defaulter = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    request = http_message("POST /mutate HTTP/1.1", compact(review(new)) + b"\n")
    async with AsyncExitStack() as stack:
        echoing, known, second, new_shapes = [
            await stack.enter_async_context(
                service("tests.bench.admission", name, probe="/healthz", DEFAULTER=defaulter)
            )
            for name in (ECHO, OF_KNOWN, OF_KNOWN, OF_NEW)
        ]
        sides = {
            "echo": [echoing],
            "mutate, known shape": [known],
            "mutate, known shape, 2 replicas": [known, second],
            "mutate, new shape": [new_shapes],
        }
        section(f"a review of {len(request)} bytes")
        for at_once in connections:
            turns: dict[str, list[Turn]] = {name: [] for name in sides}
            for _ in range(rounds + 1):
                for name, servers in sides.items():
                    turns[name].append(await turn(servers, request, at_once, seconds))
            for name, found in turns.items():
                _report_turns(f"{name}, {at_once} at once", found[1:], turns["echo"][1:])


def compact(document: Json) -> bytes:
    """The JSON text in the form of API servers."""
    return json.dumps(document, separators=(",", ":")).encode()


def _report_turns(what: str, turns: Sequence[Turn], echoed: Sequence[Turn]) -> None:
    """The first turn of each side warms up, and is not in the sequences."""
    pairs = list(zip(turns, echoed, strict=True))
    ratio = statistics.median(each.rate / other.rate for each, other in pairs)
    cpu = statistics.median(each.cpu_us / other.cpu_us for each, other in pairs)
    rate, p50, p99, cpu_us = (
        statistics.median(getattr(each, name) for each in turns) for name in ("rate", "p50_ms", "p99_ms", "cpu_us")
    )
    measured = (
        f"{rate:.0f}/s = {ratio:.2f} of echo, p50 {p50:.1f} ms, p99 {p99:.1f} ms, CPU {cpu_us:.0f} us = {cpu:.1f}"
    )
    figures = {"ratio": ratio, "rate_per_second": rate, "p50_ms": p50, "p99_ms": p99, "cpu_us": cpu_us}
    report(what, measured, **figures, cpu_ratio=cpu)


# Admission on a stack

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
    return document(VMS, name, {"runStrategy": "Halted", "template": {"spec": spec}}, namespace, labels=labels or {})


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
        for _ in range(3):
            floor, _ = await bare(api, replace(POOL, documents=documents), size)
            before = services.cpu_seconds()
            ours, _ = await scaled(api, POOL, size)
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
        app = f"tests.bench.admission:{echo.__name__}"
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
