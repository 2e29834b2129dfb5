"""What admission costs: /mutate for a VM's creation, against a bare FastAPI that echoes the same bodies.

The defaulter behind it is a socket that answers at once, always the same: libvirt's time is another benchmark's. Both
servers run as processes of their own with uvicorn, uvloop and httptools, and are asked in turns by the same client over
the same number of connections, so that what else the machine does meets both.

    python -m bench.admission [--seconds 3] [--rounds 3] [--at-once 1 10 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvloop
from fastapi import FastAPI, Request, Response

from tests.webhook.builders import review
from tests.webhook.fake_defaulter import filled

Json = dict[str, Any]

SERVERS = {
    "echo": "bench.admission:echo",
    "mutate": "bench.admission:mutate",
}


def vm(disks: int = 2, nics: int = 1) -> Json:
    """As a pool makes it: some labels, two disks, a NIC."""
    domain = {
        "machine": {"type": "q35"},
        "memory": {"guest": "128Mi"},
        "devices": {
            "disks": [{"name": f"disk-{n}", "disk": {"bus": "virtio"}} for n in range(disks)],
            "interfaces": [{"name": f"nic-{n}", "masquerade": {}} for n in range(nics)],
        },
    }
    spec = {
        "domain": domain,
        "networks": [{"name": f"nic-{n}", "pod": {}} for n in range(nics)],
        "volumes": [{"name": f"disk-{n}", "dataVolume": {"name": f"web-{n}"}} for n in range(disks)],
    }
    owner = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachinePool",
        "name": "web",
        "uid": "u",
        "controller": True,
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": "web-17",
            "namespace": "default",
            "labels": {f"example.com/label-{n}": "value" for n in range(5)},
            "ownerReferences": [owner],
            "managedFields": [{"manager": "controllers", "operation": "Update", "fieldsV1": {"f:spec": {".": {}}}}],
        },
        "spec": {"running": True, "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec}},
    }


def echo() -> Any:
    app = FastAPI()

    @app.post("/mutate")
    async def same(request: Request) -> Response:
        return Response(await request.body(), media_type="application/json")

    return app


def mutate() -> Any:
    """The webhook as `webhook.main` wires it, but for the API server, which a VM's creation needs nothing of."""
    from time import monotonic

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


class Canned(asyncio.Protocol):
    """A defaulter that has its answer ready."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if found and len(body) >= _length(bytes(head)):
            self._received.clear()
            self._transport.write(self._answer)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


def _http(body: bytes, first: str) -> bytes:
    head = f"{first}\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _one(port: int, request: bytes, until: float, times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (began := time.perf_counter()) < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        await reader.readexactly(_length(head))
        times.append(time.perf_counter() - began)
    writer.close()


async def measured(port: int, request: bytes, at_once: int, seconds: float) -> tuple[float, float, float]:
    """(requests a second, p50 ms, p99 ms)"""
    times: list[float] = []
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(_one(port, request, began + seconds, times))
    rate = len(times) / (time.perf_counter() - began)
    times.sort()
    return rate, times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(application: str, environment: dict[str, str]) -> Iterator[int]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", application, "--factory", "--port", str(port), "--log-level", "error"]
    process = subprocess.Popen([*command, "--no-access-log"], env={**os.environ, **environment})
    try:
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


async def bench(seconds: float, rounds: int, at_once: list[int]) -> None:
    document = vm()
    completed = json.dumps({"kind": "DefaultingResponse", "object": filled(document, "s"), "warnings": []}).encode()
    answer = _http(completed, "HTTP/1.1 200 OK")
    server = await asyncio.get_running_loop().create_server(lambda: Canned(answer), "127.0.0.1", 0)
    environment = {"DEFAULTER": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    request = _http(json.dumps(review(document)).encode(), "POST /mutate HTTP/1.1")
    print(f"a review of {len(request)} bytes")
    with serving(SERVERS["echo"], environment) as echo_port, serving(SERVERS["mutate"], environment) as mutate_port:
        for many in at_once:
            echoed, mutated = [], []
            for _ in range(rounds):
                echoed.append(await measured(echo_port, request, many, seconds))
                mutated.append(await measured(mutate_port, request, many, seconds))
            bare = statistics.median(rate for rate, _, _ in echoed)
            ours = statistics.median(rate for rate, _, _ in mutated)
            p50, p99 = (statistics.median(row[column] for row in mutated) for column in (1, 2))
            print(
                f"{many:3d} at once: echo {bare:6.0f}/s, mutate {ours:6.0f}/s = {ours / bare:.2f} of it; "
                f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 10, 50])
    options = parser.parse_args()
    uvloop.run(bench(options.seconds, options.rounds, options.at_once))


if __name__ == "__main__":
    main()
