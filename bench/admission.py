"""Measures `/mutate` for a new VM, as a ratio to a FastAPI app that echoes the same bodies, and admission on a stack.

    python -m bench.admission [--seconds 3.0] [--rounds 3] [--at-once 1 10 50] [--dir DIR] [--creates 200]
                              [--noisy 16] [--disks 64]

`--rounds 0` leaves the first part out. A fake defaulter sends a fixed response at once. Both servers run with uvicorn,
uvloop and httptools. The client sends the same requests to both servers in turns.

The second part creates ordinary VMs in one namespace: without admission, with admission, and with admission while
another namespace's clients, `--noisy` of them, ask for VMs of `--disks` disks, each of another shape, without a pause.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, cast

import uvicorn
import uvloop
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp

from apimachinery.owner_references import controller_reference
from apimachinery.unstructured import Json
from bench.harness import (
    connect,
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
from kinds.meta import DEFAULTING, DISABLED, UNDEFAULTED
from runtime.api import Api
from runtime.errors import ApiError
from runtime.resource import VMS
from tests.webhook.builders import review
from tests.webhook.fake_defaulter import filled

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


def mutate() -> ASGIApp:
    """Returns the webhook's app without an API server, because the admission of a VM needs none."""
    import aiohttp
    from prometheus_client import CollectorRegistry

    from defaulter.contract import Defaulter
    from runtime.circuit_breaker import CircuitBreaker
    from webhook.admission import Admission
    from webhook.app import WebhookParts, create_app
    from webhook.defaulting import DefaultingHandler
    from webhook.metrics import Metrics

    connector = aiohttp.TCPConnector(limit=64)
    defaulter = Defaulter(os.environ["DEFAULTER"], 2.0, aiohttp.ClientSession(connector=connector))
    defaulting = DefaultingHandler(defaulter, seed="s", budget_seconds=2, now=monotonic, breaker=CircuitBreaker())
    metrics = Metrics(CollectorRegistry(), ["VirtualMachine"])
    unused: Any = None
    return create_app(WebhookParts(unused, Admission(defaulting=defaulting, checks=()), unused, unused, metrics))


SERVERS = (echo.__name__, mutate.__name__)


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


async def rates(url: str, request: bytes, at_once: int, seconds: float) -> Rates:
    """Returns requests per second, and p50 and p99 of the latency in milliseconds."""
    times: list[float] = []
    host, _, port = url.removeprefix("http://").partition(":")
    end = time.perf_counter() + seconds

    async def one_connection() -> None:
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
        for _ in range(at_once):
            group.create_task(one_connection())
    rate = len(times) / (time.perf_counter() - began)
    return rate, percentile(times, 50) * 1000, percentile(times, 99) * 1000


async def bench(seconds: float, rounds: int, connections: list[int]) -> None:
    new = vm()
    response = {"kind": "DefaultingResponse", "object": filled(new, "s"), "warnings": []}
    answer = http_message("HTTP/1.1 200 OK", json.dumps(response).encode())
    server = await asyncio.get_running_loop().create_server(lambda: FixedAnswer(answer), "127.0.0.1", 0)
    defaulter = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    request = http_message("POST /mutate HTTP/1.1", json.dumps(review(new)).encode())
    section(f"a review of {len(request)} bytes")
    async with AsyncExitStack() as stack:
        servers = {
            name: await stack.enter_async_context(
                service("bench.admission", name, probe="/healthz", DEFAULTER=defaulter)
            )
            for name in SERVERS
        }
        for at_once in connections:
            turns = [
                {name: await rates(server.url, request, at_once, seconds) for name, server in servers.items()}
                for _ in range(rounds)
            ]
            found = {name: [statistics.median(turn[name][n] for turn in turns) for n in range(3)] for name in servers}
            echoed, (rate, p50, p99) = found["echo"][0], found["mutate"]
            ratio = f"echo {echoed:.0f}/s, mutate {rate:.0f}/s = {rate / echoed:.2f} of echo"
            measured = f"{ratio}; p50 {p50:.1f} ms, p99 {p99:.1f} ms"
            report(
                f"{at_once} at once", measured, rate_ratio=rate / echoed, rate_per_second=rate, p50_ms=p50, p99_ms=p99
            )


# Admission on a stack

NOISE = "noise"
"""the argument with which this module starts the noisy clients"""
WITHOUT = ("controllers", "engine")
PAUSE_SECONDS = 0.02


def shape(
    name: str, namespace: str, memory: int, disks: int = 2, nics: int = 1, labels: Mapping[str, str] | None = None
) -> Json:
    """Returns a halted VM, whose shape is another one with another memory."""
    volumes = {f"disk-{number}": {"emptyDisk": {"capacity": "1Mi"}} for number in range(disks)}
    spec = vmi_spec(volumes, [f"nic-{number}" for number in range(nics)], f"{131072 + memory}Ki")
    return document(VMS, name, {"runStrategy": "Halted", "template": {"spec": spec}}, namespace, labels=labels or {})


async def created(
    api: Api, namespace: str, prefix: str, creates: int, labels: Mapping[str, str] | None = None
) -> tuple[list[float], int]:
    """Creates ordinary VMs one after another. Returns the seconds of each, and how many have no defaults."""
    times, undefaulted = [], 0
    for number in range(creates):
        vm = shape(f"{prefix}-{number}", namespace, number, labels=labels)
        began = time.perf_counter()
        stored = await api.create(VMS, vm)
        times.append(time.perf_counter() - began)
        domain = stored["spec"]["template"]["spec"]["domain"]
        annotations = stored["metadata"].get("annotations") or {}
        undefaulted += UNDEFAULTED in annotations or "uuid" not in domain.get("firmware", {})
        await asyncio.sleep(PAUSE_SECONDS)
    return times, undefaulted


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
        *(sys.executable, "-m", "bench.admission", *arguments), stdout=asyncio.subprocess.PIPE
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


async def fairness(directory: Path, creates: int, clients: int, disks: int) -> None:
    kubeconfig = directory / "kubeconfig"
    async with await connect(kubeconfig) as api:
        await prepare(api, VMS)
        async with new_namespace(api) as quiet, new_namespace(api) as busy:
            section(f"{creates} ordinary VMs, one after another")
            await created(api, quiet, "first", 20)
            bare, _ = await created(api, quiet, "bare", creates, {DEFAULTING: DISABLED})
            idle, missed = await created(api, quiet, "idle", creates)
            _compare("with admission, to the bare create", idle, bare, missed)
            async with noise(kubeconfig, busy, clients, disks):
                noisy, missed = await created(api, quiet, "noisy", creates)
            _compare(f"beside {clients} clients with VMs of {disks} disks, to idle", noisy, idle, missed)


def _compare(what: str, times: list[float], base: list[float], undefaulted: int) -> None:
    found = [(percentile(times, each) * 1000, percentile(base, each) * 1000) for each in (50, 99)]
    shown = ", ".join(
        f"p{name} {ms:.1f} ms = {ms / ms_of_base:.2f}" for name, (ms, ms_of_base) in zip((50, 99), found, strict=True)
    )
    (p50, base50), (p99, base99) = found
    figures = {"p50_ratio": p50 / base50, "p99_ratio": p99 / base99, "p50_ms": p50, "p99_ms": p99}
    report(what, f"{shown}; {undefaulted} without defaults", **figures, undefaulted=undefaulted)


def main() -> None:
    if sys.argv[1:2] == [NOISE]:
        _, _, kubeconfig, namespace, clients, disks = sys.argv
        uvloop.run(make_noise(Path(kubeconfig), namespace, int(clients), int(disks)))
        return
    if sys.argv[1:] and sys.argv[1] in SERVERS:
        host, _, port = os.environ["POOLHOUSE_LISTEN"].partition(":")
        app = f"bench.admission:{sys.argv[1]}"
        uvicorn.run(app, factory=True, host=host, port=int(port), log_level="error", access_log=False)
        return
    options = parse_options(
        __doc__, seconds=3.0, rounds=3, at_once=[1, 10, 50], dir=None, creates=200, noisy=16, disks=64
    )
    if options.rounds:
        uvloop.run(bench(options.seconds, options.rounds, options.at_once))
    if options.creates:
        with stack(options.dir, without=WITHOUT) as directory:
            uvloop.run(fairness(directory, options.creates, options.noisy, options.disks))


if __name__ == "__main__":
    main()
