"""A proxy of the API server that records which RBAC right each request of a ServiceAccount needs."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import aiohttp
import yaml
from aiohttp import web

from tests.serving import ANY_PATH, serving

HOP_HEADERS = {"host", "transfer-encoding", "content-length", "connection", "content-encoding", "date", "server"}


class Right(NamedTuple):
    group: str
    resource: str
    verb: str


@dataclass(frozen=True)
class RecordedRequest:
    right: Right
    status: int


def right_of(method: str, path: str, query: str) -> Right | None:
    """The right that a request needs, or None if it is not about a resource."""
    parts = path.strip("/").split("/")
    if parts[:1] == ["api"] and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return None
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = "/".join([rest[0], *rest[2:3]])
    named = len(rest) > 1
    if method == "GET":
        verb = "get" if named else "watch" if "watch=true" in query else "list"
    else:
        verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
        verb += "collection" if verb == "delete" and not named else ""
    return Right(group, resource, verb)


class Recorder:
    """A separate port for each ServiceAccount identifies its requests."""

    def __init__(self, kubeconfig: Path) -> None:
        cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
        self._target, self._ca = cluster["server"], cluster["certificate-authority"]
        self._servers: dict[str, str] = {}
        self.seen: dict[str, set[RecordedRequest]] = {}

    async def __aenter__(self) -> Recorder:
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=self._ca), limit=0)
        session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        self._opened = AsyncExitStack()
        self._session = await self._opened.enter_async_context(session)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.aclose()

    async def server(self, account: str) -> str:
        """Returns the address of the proxy for this account."""
        if account not in self._servers:
            seen = self.seen.setdefault(account, set())

            async def forward(request: web.Request) -> web.StreamResponse:
                return await self._forward(request, seen)

            port = await self._opened.enter_async_context(serving(web.route("*", ANY_PATH, forward)))
            self._servers[account] = f"http://127.0.0.1:{port}"
        return self._servers[account]

    async def _forward(self, request: web.Request, seen: set[RecordedRequest]) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_HEADERS}
        timeout = aiohttp.ClientTimeout(total=None)
        url = self._target + str(request.rel_url)
        async with self._session.request(
            request.method,
            url,
            headers=headers,
            data=await request.read() or None,
            timeout=timeout,
            allow_redirects=False,
        ) as answer:
            if right := right_of(request.method, request.path, request.query_string):
                seen.add(RecordedRequest(right, answer.status))
            back = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_HEADERS}
            if "Content-Encoding" in answer.headers:
                back["Content-Encoding"] = answer.headers["Content-Encoding"]
            response = web.StreamResponse(status=answer.status, headers=back)
            with suppress(ConnectionError, aiohttp.ClientError):  # the client may disconnect first
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            return response
