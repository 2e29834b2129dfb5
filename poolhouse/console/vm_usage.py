"""The CPU and the memory of a VM in the last hour, from a Prometheus that the user or the operator of a portal names.

Prometheus answers with its own account. So each page that shows figures of a VM first reads this VM with the rights of
the user, and not from memory. The query has the names in what was read, and not those of the address.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from poolhouse.api.apimachinery.timestamps import known_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.svg import Series, step_chart
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import Key, Resource
from poolhouse.service.prometheus import PrometheusError

if TYPE_CHECKING:
    from poolhouse.console.cluster_state import ClusterState

PERIOD_SECONDS, STEP_SECONDS = 3600, 60
FRESH_SECONDS = 30
DEADLINE_SECONDS = 2.0
"""shorter than the time for which a page waits, so that the page says what is wrong"""
GIB = 1024**3

CHARTS: Mapping[str, tuple[str, float]] = {
    "CPUs in use": ("sum(rate(kubevirt_vmi_cpu_usage_seconds_total{labels}[5m]))", 1),
    "Memory that QEMU holds, in GiB": ("sum(kubevirt_vmi_memory_resident_bytes{labels})", GIB),
}
"""the query of each chart, with the labels of the VM to be filled in, and the unit"""


class Metrics(Protocol):
    """A Prometheus that has the metrics of VMs."""

    async def query_range(
        self, query: str, namespace: str, *, start: float, end: float, step_seconds: int
    ) -> Sequence[tuple[float, float]]: ...


async def usage(state: ClusterState, metrics: Metrics | None, resource: Resource, key: Key) -> list[Json]:
    """The charts of a VM or VMI as one part of the page; nothing without a Prometheus."""
    if metrics is None:
        return []
    try:
        document = await state.read(resource, key)
    except ApiError as error:
        return [{"charts": [], "problem": f"The {resource.kind} cannot be read: {error.message}"}]
    uid, stamp = document["metadata"]["uid"], int(state.now().timestamp()) // FRESH_SECONDS
    return [await state.remember(("usage", uid), stamp, lambda: _charts(metrics, document, state.now().timestamp()))]


async def _charts(metrics: Metrics, document: Json, end: float) -> Json:
    metadata, begin = document["metadata"], end - PERIOD_SECONDS
    created = known_time(metadata["creationTimestamp"])
    # Not the figures of a former VM with the same name, which may have been another user's.
    start = min(max(begin, created.timestamp() if created else end), end)
    selector = labels(metadata["namespace"], metadata["name"])

    async def chart(title: str, query: str, unit: float) -> str:
        query = query.replace("{labels}", selector)
        found = await metrics.query_range(query, metadata["namespace"], start=start, end=end, step_seconds=STEP_SECONDS)
        points = [(time, float(f"{value / unit:.3g}")) for time, value in found]
        return step_chart("The last hour", begin, end, [Series(title, points)]) if points else ""

    try:
        charts = await asyncio.gather(*(chart(title, *query) for title, query in CHARTS.items()))
    except PrometheusError as error:
        return {"charts": [], "problem": f"{error}."}
    return {"charts": [each for each in charts if each], "problem": ""}


def labels(namespace: str, name: str) -> str:
    """The label matchers of a VM. PromQL quotes as JSON does, so that no name ends the matchers."""
    return f"{{namespace={json.dumps(namespace)},name={json.dumps(name)}}}"
