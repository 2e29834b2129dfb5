"""A second default among the warm pools of a namespace.

Compared with what the API server has at this moment, so the only one that is missed is made in the same moment. The
controller then sees both, serves from the older, and says so in the younger's condition Default.
"""

from __future__ import annotations

import asyncio

from apimachinery.problem import Problem
from apimachinery.unstructured import at
from kinds.warmpool import WARM_POOL
from runtime.api import Api
from runtime.errors import ApiError
from runtime.resource import Resource
from webhook.review import AdmissionRequest, AdmissionResponse

POOLS = Resource(WARM_POOL.group, WARM_POOL.versions[0], WARM_POOL.plural, WARM_POOL.kind)


class DefaultPoolConflicts:
    def __init__(self, api: Api, *, budget_seconds: float) -> None:
        self._api = api
        self._budget_seconds = budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """On a warm pool that wants to be the default and was not."""
        if request.kind != WARM_POOL.kind or not _willing(request.object) or _willing(request.old):
            return AdmissionResponse()
        try:
            async with asyncio.timeout(self._budget_seconds):
                others, _ = await self._api.list(POOLS, request.namespace)
        except (ApiError, TimeoutError) as error:
            why = error.message if isinstance(error, ApiError) else "no answer in time"
            told = f"spec.default: other pools could not be asked ({why}); of two defaults, the older one serves"
            return AdmissionResponse(warnings=(told,))
        name = at(request.object, "metadata", "name") or request.name
        for other in others:
            metadata = other["metadata"]
            if metadata["name"] != name and _willing(other) and not metadata.get("deletionTimestamp"):
                message = f"{metadata['name']} is this namespace's default pool; set its spec.default to false first"
                return AdmissionResponse(problems=(Problem("spec.default", message),))
        return AdmissionResponse()


def _willing(document: object) -> bool:
    return at(document, "spec", "default") is True
