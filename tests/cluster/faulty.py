"""A way to the API server on which things go wrong, as often as is asked for and by a seed that can be repeated.

It stands in front of a real API server: what is not refused on the way is done, and answered by it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from tests.serving import ANY_PATH, serving

Json = dict[str, Any]

HOP = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding"}


class Faulty:
    def __init__(self, kubeconfig: Path, chance: Random) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        context = next(c["context"] for c in document["contexts"] if c["name"] == document["current-context"])
        cluster = next(c["cluster"] for c in document["clusters"] if c["name"] == context["cluster"])
        self._url = cluster["server"]
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._document = document
        self._chance = chance
        self.rate = 0.0
        """share of the requests that go wrong"""
        self.away = False
        """nothing is answered at all"""
        self.done: Counter[str] = Counter()
        self.era = 0
        """of controllers: who asked in one before this is gone"""
        self._asked: Counter[int] = Counter()
        """what is on its way, by era"""

    def late(self) -> bool:
        """Whether something is on its way that somebody asked for who is gone."""
        return any(self._asked[era] for era in range(self.era))

    @asynccontextmanager
    async def serve(self, kubeconfig: Path) -> AsyncIterator[None]:
        """Writes a kubeconfig with the same credentials that leads here."""
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        async with (
            aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session,
            serving(web.route("*", ANY_PATH, self._answer)) as port,
        ):
            document = json.loads(json.dumps(self._document))
            for each in document["clusters"]:
                each["cluster"] = {"server": f"http://127.0.0.1:{port}"}
            kubeconfig.write_text(yaml.safe_dump(document))  # noqa: ASYNC240
            yield

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        watching = "watch" in request.query
        fault = self._fault(request, watching)
        if fault:
            self.done[fault] += 1
        match fault:
            case "reset":
                return cut(request)
            case "throttled":
                return _status(429, "TooManyRequests", {"Retry-After": "1"})
            case "conflict":
                return _status(409, "Conflict")
            case "denied":
                return _status(403, "Forbidden")
            case "invalid":
                return _status(422, "Invalid")
            case "error":
                return _status(500, "InternalError")
            case "unavailable":
                return _status(503, "ServiceUnavailable")
            case "expired":
                return _status(410, "Expired")
        if watching:
            return await self._forward(request, watching, fault)
        era = self.era
        self._asked[era] += 1
        try:
            return await self._forward(request, watching, fault)
        finally:
            self._asked[era] -= 1

    def _fault(self, request: web.Request, watching: bool) -> str:
        if self.away:
            return "reset"
        if self._chance.random() >= self.rate:
            return ""
        faults = ["reset", "throttled", "error", "unavailable"]
        if watching:
            return self._chance.choice(["reset", "expired", "short", "throttled"])
        if request.method == "GET":
            faults += ["expired", "truncated"]
        else:
            faults += ["timeout", "truncated"]
        faults.append("delayed")
        if request.method in ("PATCH", "DELETE", "PUT"):
            faults += ["conflict", "invalid", "lost"]
        if request.method == "POST":
            # Denied as by a webhook that does not like one VM in ten.
            faults += ["lost", "lost", "denied", "invalid"]
        return self._chance.choice(faults)

    async def _forward(self, request: web.Request, watching: bool, fault: str) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
        # A long answer would be packed, and passed on without saying so.
        headers["Accept-Encoding"] = "identity"
        body = await request.read() or None  # built-in groups refuse the Content-Type of an empty body
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method, self._url + request.path_qs, headers=headers, data=body, timeout=timeout
        ) as answer:
            if fault == "lost":  # it was done, and nobody hears of it
                await answer.read()
                return cut(request)
            if fault == "timeout":  # the API server has executed the request, and says that it took too long
                await answer.read()
                return _status(504, "Timeout")
            if fault == "delayed":
                await asyncio.sleep(self._chance.uniform(0.5, 3.0))
            response = web.StreamResponse(status=answer.status)
            for name in ("Content-Type", "Retry-After", "Warning"):
                if name in answer.headers:
                    response.headers[name] = answer.headers[name]
            await response.prepare(request)
            if fault == "truncated":
                whole = await answer.read()
                await response.write(whole[: len(whole) // 2])
                return cut(request)
            end = asyncio.get_running_loop().time() + self._chance.uniform(0.2, 2.0) if fault == "short" else None
            try:
                async with asyncio.timeout_at(end):
                    async for chunk in answer.content.iter_any():
                        if self.away and watching:
                            return cut(request)
                        await response.write(chunk)
                await response.write_eof()
            except TimeoutError:
                return cut(request)
            except ConnectionError:  # who asked has gone
                pass
            return response


def cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _status(code: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "a fault of the test"}
    return web.json_response(body, status=code, headers=headers)
