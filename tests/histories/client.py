"""The transport between a process of a history and the API server, with delays, faults and crashes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import format_datetime
from random import Random
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.clock import ApiServerClock
from poolhouse.runtime.errors import Unreachable, error_from_response
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.transport import Request, encode, parse_object
from tests.histories.api_server import ApiServer, Path, Refused, line, selector

DEADLINE_SECONDS = 15.0
BOOKMARK_SECONDS = 60.0
SUBRESOURCES = "/apis/subresources.kubevirt.io/"
WRITES = ("POST", "PUT", "PATCH", "DELETE")
REFUSALS = {
    "conflict": (409, "Conflict", None),
    "throttled": (429, "TooManyRequests", "1"),
    "error": (500, "InternalError", None),
    "unavailable": (503, "ServiceUnavailable", None),
    "timeout": (504, "Timeout", None),
    "expired": (410, "Expired", None),
}
# Names that stand twice are twice as frequent.
FAULTS = ("reset", "throttled", "error", "unavailable", "timeout")
FAULTS_OF_READS = ("expired", "expired")
FAULTS_OF_WRITES = ("lost", "lost", "late timeout", "late error", "hang")
FAULTS_OF_CHANGES = ("conflict", "conflict")
CUTS = ("reset", "expired", "ended")
"""how watches end before their time"""


class Crashed(Exception):
    """A request of a process that has crashed."""


@dataclass
class Failpoint:
    """Crashes a process at its write with this number: before the write, or after it and before the answer."""

    number: int
    after: bool


@dataclass
class Network:
    """How requests of one process go wrong. `rate` is the share of requests."""

    random: Random
    rate: float = 0.0
    stalls: float = 0.0
    """Share of the batches of watch events that arrive seconds late."""
    away: bool = False
    done: Counter[str] = field(default_factory=Counter)

    def latency(self) -> float:
        return self.random.uniform(0.001, 0.02)

    def lag(self) -> float:
        """Each watch has its own delay, so that events of two resources change their order."""
        if self.random.random() < self.stalls:
            return self.random.uniform(0.2, 4.0)
        return self.random.uniform(0.001, 0.03)

    def fault(self, method: str) -> str:
        if self.away:
            return "reset"
        if not self.rate or self.random.random() >= self.rate:
            return ""
        faults: list[str] = [*FAULTS, *(FAULTS_OF_READS if method == "GET" else FAULTS_OF_WRITES)]
        if method in ("PATCH", "PUT", "DELETE"):
            faults += FAULTS_OF_CHANGES
        found = self.random.choice(faults)
        self.done[found] += 1
        return found

    def cut(self) -> str:
        """How a watch ends before its time."""
        if self.away:
            return "reset"
        if not self.rate or self.random.random() >= self.rate / 4:
            return ""
        found = self.random.choice(CUTS)
        self.done[f"watch {found}"] += 1
        return found


@dataclass
class MemoryTransport:
    """Has the interface of `poolhouse.runtime.transport.Transport`."""

    server: ApiServer
    actor: str
    network: Network
    clock: ApiServerClock
    metrics: Metrics
    subresource: Callable[[Request], Awaitable[None]]
    on_crash: Callable[[], None] = lambda: None
    failpoint: Failpoint | None = None
    writes: int = 0
    crashed: bool = False

    @property
    def unbounded(self) -> MemoryTransport:
        return self

    async def send(self, request: Request) -> Json:
        return parse_object(await self.send_raw(request), str(request))

    async def send_raw(self, request: Request) -> bytes:
        return (await self.respond(request))[1]

    async def respond(self, request: Request) -> tuple[int, bytes]:
        self._alive()
        sent_at = self.clock.steady
        fault = self.network.fault(request.method)
        await asyncio.sleep(self.network.latency())
        self._alive()
        if fault == "reset":
            raise self._unreachable(request)
        try:
            if fault in REFUSALS:
                code, reason, retry_after = REFUSALS[fault]
                raise Refused(code, reason, "a fault of the history", retry_after)
            raw = await self._execute(request)
            await asyncio.sleep(self.network.latency())
            self._alive()
            if fault == "late timeout":
                raise Refused(504, "Timeout", "the write has been executed")
            if fault == "late error":
                raise Refused(500, "InternalError", "the write has been executed")
        except Refused as refused:
            now = self.clock.now()
            raise error_from_response(
                refused.code, refused.body, retry_after=refused.retry_after, now=now, call=str(request)
            ) from None
        if fault == "hang":
            await asyncio.sleep(DEADLINE_SECONDS)
        if fault in ("lost", "hang"):
            raise self._unreachable(request)
        self.clock.observe({"Date": format_datetime(self.server.now(), usegmt=True)}, sent_at)
        return 200, raw

    async def _execute(self, request: Request) -> bytes:
        if request.method not in WRITES:
            return encode(self.server.answer(self.actor, request.method, request.path, None, request.query or {}))
        self.writes += 1
        await self._fail(after=False)
        if request.path.startswith(SUBRESOURCES):
            await self.subresource(request)
            raw = b""
        else:
            # The body is copied, because the caller may change it later.
            body = json.loads(encode(request.body)) if request.body is not None else None
            raw = encode(self.server.answer(self.actor, request.method, request.path, body, request.query or {}))
        await self._fail(after=True)
        return raw

    async def _fail(self, *, after: bool) -> None:
        if self.failpoint == Failpoint(self.writes, after):
            self.crash()
            await asyncio.Event().wait()  # until the cancellation arrives

    def crash(self) -> None:
        self.crashed = True
        self.on_crash()

    def _alive(self) -> None:
        if self.crashed:
            raise Crashed

    async def lines(
        self, request: Request, *, timeout_seconds: float, idle_timeout_seconds: float, opened: Callable[[], None]
    ) -> AsyncGenerator[bytes]:
        opened()
        loop = asyncio.get_running_loop()
        query = dict(request.query or {})
        path = Path.parse(request.path)
        selects, version = selector(path, query), int(query["resourceVersion"])
        end, bookmark_at = loop.time() + timeout_seconds, loop.time() + BOOKMARK_SECONDS
        while loop.time() < end:
            try:
                entries = list(self.server.entries(path.plural, version))
            except Refused as refused:
                raise error_from_response(
                    refused.code, refused.body, retry_after=None, now=self.clock.now(), call=str(request)
                ) from None
            if not entries:
                if loop.time() >= bookmark_at:
                    bookmark_at = loop.time() + BOOKMARK_SECONDS
                    yield line("BOOKMARK", {"metadata": {"resourceVersion": str(self.server.version)}})
                await self._wait(path.plural, min(end, bookmark_at))
                self._alive()
                continue
            await asyncio.sleep(self.network.lag())
            self._alive()
            match self.network.cut():
                case "reset":
                    raise self._unreachable(request)
                case "expired":
                    self.server.compact()
                    continue
                case "ended":
                    return
            for entry in entries:
                version = entry.version
                if found := entry.event(selects):
                    yield line(*found)

    async def _wait(self, plural: str, until: float) -> None:
        changed = self.server.changed(plural)
        try:
            async with asyncio.timeout_at(until):
                await changed.wait()
        except TimeoutError:
            pass

    def _unreachable(self, request: Request) -> Unreachable:
        return Unreachable("the connection was reset", reason="ClientOSError", call=str(request))

    # What `Api` asks of its transport besides requests

    @property
    def config(self) -> Any:
        return self

    host = "memory"

    @property
    def session(self) -> Any:
        return self

    async def close(self) -> None: ...
