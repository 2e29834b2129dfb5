"""Measures `/mutate` for a new VM, as a ratio to a FastAPI app that echoes the same bodies.

    python -m bench.admission [--seconds 3.0] [--rounds 3] [--at-once 1 10 50]

A fake defaulter sends a fixed response at once. Both servers run with uvicorn, uvloop and httptools. The client sends
the same requests to both servers in turns.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any, cast

import uvicorn
import uvloop
from fastapi import FastAPI, Request, Response

from apimachinery.owner_references import controller_reference
from apimachinery.unstructured import Json
from bench.harness import document, parse_options, percentile, report, service, vmi_spec
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


def mutate() -> FastAPI:
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
    print(f"a review of {len(request)} bytes")
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
            report(f"{at_once} at once", f"{ratio}; p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def main() -> None:
    if sys.argv[1:] and sys.argv[1] in SERVERS:
        host, _, port = os.environ["POOLHOUSE_LISTEN"].partition(":")
        app = f"bench.admission:{sys.argv[1]}"
        uvicorn.run(app, factory=True, host=host, port=int(port), log_level="error", access_log=False)
        return
    options = parse_options(__doc__, seconds=3.0, rounds=3, at_once=[1, 10, 50])
    uvloop.run(bench(options.seconds, options.rounds, options.at_once))


if __name__ == "__main__":
    main()
