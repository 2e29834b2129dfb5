"""The first part of `tests.bench.admission`: `/mutate` for a new VM, compared with an app that echoes the bodies."""

import asyncio
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.resource_types import POOLS
from poolhouse.runtime.resource import VMS
from poolhouse.service.server import serve
from tests.bench.harness import Process, document, percentile, report, section, service
from tests.builders import owned_by, vm_spec, vmi_spec
from tests.webhook.builders import review, unreadable_vmi
from tests.webhook.fake_defaulter import filled, with_identity

Rates = tuple[float, float, float]


def vm() -> Json:
    """Returns a VM of a pool, with two disks and a NIC."""
    volumes = {name: {"dataVolume": {"name": f"web-{name}"}} for name in ("disk-0", "disk-1")}
    spec = vmi_spec(volumes, ["nic-0"])
    spec["domain"]["machine"] = {"type": "q35"}
    metadata = {
        "labels": {f"example.com/label-{n}": "value" for n in range(5)},
        "ownerReferences": owned_by(POOLS, "web", "u"),
        "managedFields": [{"manager": "controllers", "operation": "Update", "fieldsV1": {"f:spec": {".": {}}}}],
    }
    return document(VMS, "web-17", vm_spec(spec, labels={"app": "web"}, running=True), "default", **metadata)


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
        defaulting = DefaultingHandler(
            defaulter, seed="s", budget_seconds=2, now=monotonic, breaker=CircuitBreaker(), find_vmi=unreadable_vmi
        )
        metrics = Metrics(CollectorRegistry(), ["VirtualMachine"])
        unused: Any = None
        admission = Admission(defaulting=defaulting, checks=(), drift=HardwareDrift(now=monotonic))
        yield create_app(WebhookParts(unused, admission, unused, metrics))


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
