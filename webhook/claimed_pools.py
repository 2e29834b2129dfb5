"""Warns about a claim that no warm pool can serve yet.

The webhook does not deny such a claim, because its pool may follow: `kubectl apply` and GitOps tools create the objects
of one directory in any order. The claim waits for its pool, and its condition `Bound` says so.
"""

import asyncio
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds.claim import CLAIM, NO_POOL_SECONDS
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import Key, Resource
from webhook.review import AdmissionRequest, AdmissionResponse

PATH = "spec.poolName"
KNOWN_SECONDS = 60.0
"""Time for which a pool that was found counts as existing, so that most claims cost no request."""
MAX_KNOWN = 10_000


class ClaimedPool:
    def __init__(self, api: Api, *, budget_seconds: float, now: Callable[[], float]) -> None:
        self._api, self._budget_seconds, self._now = api, budget_seconds, now
        self._found: dict[Key, float] = {}
        """When a pool was found, by namespace and name; the name of the default pool is empty."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        # The field cannot be changed later.
        if not request.is_of(CLAIM) or request.old:
            return AdmissionResponse()
        key = request.namespace, typed(str, request.object, "spec", "poolName") or ""
        if self._now() - self._found.get(key, float("-inf")) < KNOWN_SECONDS:
            return AdmissionResponse()
        try:
            async with asyncio.timeout(self._budget_seconds):
                pools, _ = await self._api.list(Resource.of(WARM_POOL), request.namespace)
        except (ApiError, TimeoutError):
            return AdmissionResponse()  # the condition Bound reports a missing pool
        seconds = typed(int, request.object, "spec", "bindTimeoutSeconds") or NO_POOL_SECONDS
        if warning := why_not_served(key[1], pools, seconds):
            return AdmissionResponse(warnings=(warning,))
        if len(self._found) >= MAX_KNOWN:
            self._found.clear()
        self._found[key] = self._now()
        return AdmissionResponse()


def why_not_served(name: str, pools: Sequence[Json], seconds: int) -> str:
    """Why none of the namespace's pools serves a claim with this `poolName`, or an empty string. `seconds` is the time
    for which the claim waits for its pool."""
    there = {each["metadata"]["name"]: each for each in pools if not at(each, "metadata", "deletionTimestamp")}
    if name in there or (not name and any(at(each, "spec", "default") is True for each in there.values())):
        return ""
    missing = f"the namespace has no warm pool {name}" if name else "is not set, and the namespace has no default pool"
    similar = get_close_matches(name, there, 1, 0.7)
    hint = f'did you mean "{similar[0]}"?' if similar else f"its pools: {', '.join(sorted(there)[:5]) or 'none'}."
    return f"{PATH}: {missing}; {hint} The claim fails if that does not change within {seconds} s"
