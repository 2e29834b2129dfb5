"""VMs that we create are complete even while the webhook is away.

On a cluster KubeVirt may start a VM the moment it exists, so completing it afterwards comes too late. Whether the
webhook is there is found out by a dry run of one VM, at most twice a minute and only when VMs are to be created; while
it is away, the defaulter is asked from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from defaulter.contract import Away, Defaulter, undefaulted
from kinds import meta
from runtime.api import Api, Resource
from runtime.errors import ApiError

log = logging.getLogger(__name__)

Json = dict[str, Any]

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
BELIEVED_SECONDS = 30.0
AT_ONCE = 8


class Prepare:
    def __init__(
        self, api: Api, resource: Resource, defaulter: Defaulter | None, seed: str, clock: Callable[[], float]
    ) -> None:
        self._api, self._resource, self._defaulter, self._seed, self._clock = api, resource, defaulter, seed, clock
        self._present_until = float("-inf")

    async def __call__(self, documents: Sequence[Json]) -> list[Json]:
        """The same documents, completed here if the API server would not have it done. Raises Refused where the
        defaulter finds the template wrong, and ApiError where the API server refuses the first VM."""
        if self._defaulter is None or not documents or await self._will_be_completed(documents[0]):
            return list(documents)
        turns = asyncio.Semaphore(AT_ONCE)

        async def complete(document: Json) -> Json:
            async with turns:
                return await self._completed(document)

        return list(await asyncio.gather(*map(complete, documents)))

    def saw(self, created: Json) -> None:
        """What was created tells for nothing what the next dry run would."""
        if undefaulted(created):
            self._present_until = float("-inf")
        else:
            self._present_until = self._clock() + BELIEVED_SECONDS

    async def _will_be_completed(self, document: Json) -> bool:
        if self._clock() < self._present_until:
            return True
        answer = await self._api.create(self._resource, document, dry_run=True)
        self.saw(answer)
        return not undefaulted(answer) or await self._opted_out(document["metadata"]["namespace"])

    async def _opted_out(self, namespace: str) -> bool:
        try:
            metadata = (await self._api.get(NAMESPACES, None, namespace))["metadata"]
        except ApiError:
            return False
        return bool((metadata.get("labels") or {}).get(meta.DEFAULTING) == meta.DISABLED)

    async def _completed(self, document: Json) -> Json:
        assert self._defaulter is not None
        namespace = document["metadata"]["namespace"]
        try:
            answer = await self._defaulter.complete(document, namespace=namespace, seed=self._seed or None)
        except Away as away:
            log.warning("%s/%s: created undefaulted: %s", namespace, document["metadata"]["name"], away)
            metadata = document["metadata"]
            annotations = {**(metadata.get("annotations") or {}), meta.UNDEFAULTED: away.reason[:200]}
            return {**document, "metadata": {**metadata, "annotations": annotations}}
        return answer.object
