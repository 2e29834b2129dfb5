"""Asks a Prometheus, whose address only the operator or the user of the console sets, for the results of queries.

Each query has a namespace as a parameter: a proxy that limits queries to a namespace (prom-label-proxy, Thanos Querier
of OpenShift) needs it, and Prometheus ignores it.
"""

import asyncio
import json
import math
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from poolhouse.api.apimachinery.unstructured import at

DEADLINE_SECONDS = 10.0
QUERY_SECONDS = 5.0
"""Time limit of a query in Prometheus itself."""
MAX_BYTES = 256 * 1024
MAX_ERROR = 200


class PrometheusError(Exception):
    """The query has no answer. The message says why."""


@dataclass(frozen=True)
class PrometheusServer:
    url: str
    token_file: Path | None = None
    """file with a bearer token, which is read for each query, because it may change"""
    tls: ssl.SSLContext | bool = True
    """how the server's certificate is verified; True for the authorities of the machine"""

    @classmethod
    def parse(cls, setting: str, url: str, directory: Path | None) -> Self | None:
        """The server at the URL; None without a URL. `directory` may contain `token` and `ca.crt`. Raises ValueError,
        whose message names the setting, for an invalid URL or authority."""
        if not url:
            return None
        if not _is_server(url):
            raise ValueError(f"{setting}: Invalid value: {url!r}: must be an http or https URL without user and query")
        if directory is None:
            return cls(url.rstrip("/"))
        found = {name: path for name in ("token", "ca.crt") if (path := directory / name).exists()}
        if "token" in found and urlsplit(url).scheme != "https":
            raise ValueError(f"{setting}: must be https, because the token must not be sent in plain text")
        try:
            tls = ssl.create_default_context(cafile=found["ca.crt"]) if "ca.crt" in found else True
        except OSError as error:
            raise ValueError(f"{setting}: {found['ca.crt']} has no certificate of an authority: {error}") from None
        return cls(url.rstrip("/"), found.get("token"), tls)


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        valid_port = parts.port != 0  # reading a port that is no number raises ValueError
    except ValueError:
        return False
    is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and valid_port
    return is_http and not (parts.query or parts.fragment or parts.username)


class Prometheus:
    def __init__(
        self, server: PrometheusServer, session: aiohttp.ClientSession, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._server, self._session, self._deadline_seconds = server, session, deadline_seconds

    async def query(self, query: str, namespace: str) -> float | None:
        """The result of the query as a number; None if it has no sample. Raises PrometheusError."""
        return parse_number(await self._ask("query", namespace, {"query": query}))

    async def query_range(
        self, query: str, namespace: str, *, start: float, end: float, step_seconds: int
    ) -> Sequence[tuple[float, float]]:
        """The times and values of a query with one series; none if it has no series. Raises PrometheusError."""
        form = {"query": query, "start": f"{start:.0f}", "end": f"{end:.0f}", "step": str(step_seconds)}
        return parse_series(await self._ask("query_range", namespace, form))

    async def _ask(self, path: str, namespace: str, form: Mapping[str, str]) -> Any:
        try:
            async with asyncio.timeout(self._deadline_seconds):
                status, body = await self._post(path, namespace, form)
        except TimeoutError as error:
            raise PrometheusError(f"Prometheus gave no answer within {self._deadline_seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PrometheusError(f"Prometheus cannot be reached: {error}") from error
        return parse_answer(status, body)

    async def _post(self, path: str, namespace: str, form: Mapping[str, str]) -> tuple[int, bytes]:
        token = self._server.token_file
        headers = {"Authorization": f"Bearer {await asyncio.to_thread(token.read_text)}".strip()} if token else {}
        async with self._session.post(
            f"{self._server.url}/api/v1/{path}",
            params={"namespace": namespace},
            data={**form, "timeout": f"{min(QUERY_SECONDS, self._deadline_seconds):g}s"},
            headers=headers,
            allow_redirects=False,
            ssl=self._server.tls,
        ) as answer:
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise PrometheusError("the query has too many results; use sum or another aggregation")
            return answer.status, bytes(body)


@asynccontextmanager
async def connect(
    server: PrometheusServer | None, deadline_seconds: float = DEADLINE_SECONDS
) -> AsyncIterator[Prometheus | None]:
    """The client of a server; None without one."""
    if server is None:
        yield None
        return
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Prometheus(server, session, deadline_seconds)


def parse_answer(status: int, body: bytes) -> Any:
    """The data in a response. Raises PrometheusError."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise PrometheusError(f"Prometheus answered {status} without JSON") from error
    if status != 200 or at(document, "status") != "success":
        message = at(document, "error")
        raise PrometheusError(f"Prometheus answered {status}: {str(message or 'no reason')[:MAX_ERROR]}")
    return at(document, "data")


def parse_number(data: Any) -> float | None:
    """The number in the data of `/api/v1/query`. Raises PrometheusError."""
    kind, result = at(data, "resultType"), at(data, "result")
    try:
        match kind, result:
            case "scalar", [_, str(number)]:
                return float(number)
            case "vector", []:
                return None
            case "vector", [sample]:
                return float(sample["value"][1])
            case "vector", list():
                raise PrometheusError(f"the query has {len(result)} results; use sum or another aggregation")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise PrometheusError("Prometheus answered with an unknown form of a result") from error
    raise PrometheusError(f"the query has a result of type {str(kind)[:20]}; it must be a scalar or a vector")


def parse_series(data: Any) -> Sequence[tuple[float, float]]:
    """The points in the data of `/api/v1/query_range`, without those that are no finite numbers. Raises
    PrometheusError."""
    try:
        result = data["result"]
        points = [(float(time), float(value)) for time, value in result[0]["values"]] if result else []
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise PrometheusError("Prometheus answered with something else than a series") from error
    return [each for each in points if math.isfinite(each[1])]
