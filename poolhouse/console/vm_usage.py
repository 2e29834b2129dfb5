"""The CPU and the memory of a VM in the last hour, from a Prometheus that the user names."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.output import Failed
from poolhouse.cli.svg import Series, step_chart

if TYPE_CHECKING:
    from poolhouse.console.cluster_state import ClusterState

PERIOD_SECONDS, STEP_SECONDS = 3600, 60
FRESH_SECONDS = 30
DEADLINE_SECONDS = 2.0
"""shorter than the time for which a page waits, so that the page says what is wrong"""
MAX_BYTES = 256 * 1024
GIB = 1024**3

CHARTS: Mapping[str, tuple[str, float]] = {
    "CPUs in use": ("sum(rate(kubevirt_vmi_cpu_usage_seconds_total{labels}[5m]))", 1),
    "Memory that QEMU holds, in GiB": ("sum(kubevirt_vmi_memory_resident_bytes{labels})", GIB),
}
"""the query of each chart, with the labels of the VM to be filled in, and the unit"""


def parse_url(url: str) -> str:
    """The address without a slash at its end. Raises `Failed` for one that is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Failed(f"--prometheus: must be an http or https URL without a query, not {url!r}")
    return url.rstrip("/")


async def usage(state: ClusterState, prometheus: str, namespace: str, name: str) -> list[Json]:
    """The charts as one part of the page; nothing without a Prometheus."""
    if not prometheus:
        return []
    end = state.now().timestamp()
    stamp = int(end) // FRESH_SECONDS

    async def fetch() -> Json:
        try:
            answers = await _ask(prometheus, namespace, name, end)
            charts = [_chart(title, answers[title], unit, end) for title, (_, unit) in CHARTS.items()]
        except aiohttp.ClientConnectorError as error:
            return {"charts": [], "problem": f"Prometheus cannot be reached at {error.host}:{error.port}."}
        except TimeoutError:
            return {"charts": [], "problem": f"Prometheus gave no answer within {DEADLINE_SECONDS:g} s."}
        except (aiohttp.ClientError, OSError) as error:
            return {"charts": [], "problem": f"The connection to Prometheus has failed: {error}"}
        except (ValueError, KeyError, IndexError, TypeError) as error:
            return {"charts": [], "problem": f"Prometheus answers with something else than a series: {error}"}
        return {"charts": [each for each in charts if each], "problem": ""}

    return [await state.remember(("usage", namespace, name), stamp, fetch)]


async def _ask(prometheus: str, namespace: str, name: str, end: float) -> dict[str, bytes]:
    labels = json.dumps(namespace), json.dumps(name)  # PromQL quotes as JSON does
    selector = f"{{namespace={labels[0]},name={labels[1]}}}"
    async with asyncio.timeout(DEADLINE_SECONDS), aiohttp.ClientSession() as session:

        async def ask(query: str) -> bytes:
            data = {
                "query": query.replace("{labels}", selector),
                "start": f"{end - PERIOD_SECONDS:.0f}",
                "end": f"{end:.0f}",
                "step": str(STEP_SECONDS),
            }
            url = f"{prometheus}/api/v1/query_range"
            async with session.post(url, data=data, params={"namespace": namespace}, allow_redirects=False) as answer:
                body = b""
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > MAX_BYTES:
                        raise ValueError(f"more than {MAX_BYTES} bytes")
                if answer.status != 200:
                    raise ValueError(f"status {answer.status}")
                return body

        found = await asyncio.gather(*(ask(query) for query, _ in CHARTS.values()))
    return dict(zip(CHARTS, found, strict=True))


def parse_series(body: bytes) -> Sequence[tuple[float, float]]:
    """The points of the answer to `/api/v1/query_range`; none if Prometheus has no series."""
    result = json.loads(body)["data"]["result"]
    points = [(float(time), float(value)) for time, value in result[0]["values"]] if result else []
    return [each for each in points if math.isfinite(each[1])]


def _chart(title: str, body: bytes, unit: float, end: float) -> str:
    points = [(time, float(f"{value / unit:.3g}")) for time, value in parse_series(body)]
    return step_chart("The last hour", end - PERIOD_SECONDS, end, [Series(title, points)]) if points else ""
