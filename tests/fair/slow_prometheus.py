"""A Prometheus that answers the queries of one namespace as late as Poolhouse waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.service.prometheus import DEADLINE_SECONDS
from tests.serving import serving

QUERY: Json = {"query": "vector(0)", "successCondition": "result < 1", "intervalSeconds": 5, "count": 1}
ANALYSIS: Json = {
    "steps": [{"setReplicas": 1}, {"analysis": {}}],
    "analysis": {"checks": [{"name": "errors", "prometheus": QUERY}]},
}
"""`proactive` of a pool whose updates wait for an answer"""


@asynccontextmanager
async def slow_prometheus(namespace: str) -> AsyncIterator[str]:
    """Yields its URL. It answers 0, at once to other namespaces."""

    async def answer(request: web.Request) -> web.Response:
        if request.query.get("namespace") == namespace:
            await asyncio.sleep(DEADLINE_SECONDS)
        return web.json_response({"status": "success", "data": {"resultType": "scalar", "result": [0, "0"]}})

    async with serving(web.post("/api/v1/query", answer)) as port:
        yield f"http://127.0.0.1:{port}"
