"""The CPU and the memory of a VM in the last hour, from a Prometheus that the user names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.svg import Series, step_chart
from poolhouse.service.prometheus import Prometheus, PrometheusError

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


async def usage(state: ClusterState, prometheus: Prometheus | None, namespace: str, name: str) -> list[Json]:
    """The charts as one part of the page; nothing without a Prometheus."""
    if prometheus is None:
        return []
    end = state.now().timestamp()
    start, stamp = end - PERIOD_SECONDS, int(end) // FRESH_SECONDS
    labels = f"{{namespace={json.dumps(namespace)},name={json.dumps(name)}}}"  # PromQL quotes as JSON does

    async def chart(title: str, query: str, unit: float) -> str:
        found = await prometheus.query_range(
            query.replace("{labels}", labels), namespace, start=start, end=end, step_seconds=STEP_SECONDS
        )
        points = [(time, float(f"{value / unit:.3g}")) for time, value in found]
        return step_chart("The last hour", start, end, [Series(title, points)]) if points else ""

    async def fetch() -> Json:
        try:
            charts = await asyncio.gather(*(chart(title, *query) for title, query in CHARTS.items()))
        except PrometheusError as error:
            return {"charts": [], "problem": f"{error}."}
        return {"charts": [each for each in charts if each], "problem": ""}

    return [await state.remember(("usage", namespace, name), stamp, fetch)]
