"""Asks the Prometheus of the cluster for the result of a query.

The operator of Poolhouse sets its address. A pool gives only the query, so the author of a pool cannot make the
controllers connect to another address. Each query has the pool's namespace as a parameter: a proxy that limits queries
to a namespace (prom-label-proxy, Thanos Querier of OpenShift) needs it, and Prometheus ignores it.
"""

import asyncio
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from poolhouse.api.apimachinery.unstructured import at

TIMEOUT_SECONDS = 10.0
QUERY_SECONDS = 5
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
    ca_file: Path | None = None

    @classmethod
    def parse(cls, url: str, directory: Path | None) -> Self | None:
        """None without a URL. `directory` may contain `token` and `ca.crt`. Raises ValueError for an invalid URL."""
        if not url:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ValueError(
                f"POOLHOUSE_PROMETHEUS_URL: Invalid value: {url!r}: must be an http or https URL without user and query"
            )
        if directory is None:
            return cls(url.rstrip("/"))
        found = {name: path for name in ("token", "ca.crt") if (path := directory / name).exists()}
        if "token" in found and parts.scheme != "https":
            raise ValueError(
                "POOLHOUSE_PROMETHEUS_URL: must be https, because the token must not be sent in plain text"
            )
        return cls(url.rstrip("/"), found.get("token"), found.get("ca.crt"))


class Prometheus:
    def __init__(self, server: PrometheusServer, session: aiohttp.ClientSession) -> None:
        self._server, self._session = server, session
        ca = server.ca_file
        self._ssl: Any = ssl.create_default_context(cafile=ca) if ca else True

    async def query(self, query: str, namespace: str) -> float | None:
        """The result of the query as a number; None if it has no sample. Raises PrometheusError."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status, body = await self._ask(query, namespace)
        except TimeoutError as error:
            raise PrometheusError(f"Prometheus gave no answer within {TIMEOUT_SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PrometheusError(f"Prometheus cannot be reached: {error}") from error
        return parse_answer(status, body)

    async def _ask(self, query: str, namespace: str) -> tuple[int, bytes]:
        token = self._server.token_file
        headers = {"Authorization": f"Bearer {await asyncio.to_thread(token.read_text)}".strip()} if token else {}
        async with self._session.post(
            f"{self._server.url}/api/v1/query",
            params={"namespace": namespace},
            data={"query": query, "timeout": f"{QUERY_SECONDS}s"},
            headers=headers,
            allow_redirects=False,
            ssl=self._ssl,
        ) as answer:
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise PrometheusError("the query has too many results; use sum or another aggregation")
            return answer.status, bytes(body)


def parse_answer(status: int, body: bytes) -> float | None:
    """The number in a response of `/api/v1/query`. Raises PrometheusError."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise PrometheusError(f"Prometheus answered {status} without JSON") from error
    if status != 200 or at(document, "status") != "success":
        message = at(document, "error")
        raise PrometheusError(f"Prometheus answered {status}: {str(message or 'no reason')[:MAX_ERROR]}")
    kind, result = at(document, "data", "resultType"), at(document, "data", "result")
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
