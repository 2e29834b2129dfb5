"""Creates VMs and VMIs with default hardware, even while the webhook is unavailable.

KubeVirt may start a VM at once, so defaulting after the creation is too late. A dry run of one object, at most twice a
minute, shows whether the webhook works. While the webhook does not work, this client sends the objects to the defaulter
itself. If the webhook fails during a batch, the API server's responses show this. The client then defaults the rest of
the batch first, and VMs that were created undefaulted at once.

KubeVirt's virt-api gives a new VM a random firmware UUID and serial before the webhook is called. VMs of Poolhouse
therefore get theirs before they are created. A VM that replaces one of the same name has the same UUID and serial.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from defaulter.contract import (
    Defaulter,
    DefaulterUnavailable,
    InvalidDocument,
    undefaulted_fields,
    with_firmware_ids,
)
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.vm_documents import with_undefaulted
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Conflict
from poolhouse.runtime.resource import NAMESPACES, Resource

log = logging.getLogger(__name__)

BELIEVED_SECONDS = 30.0
AT_ONCE = 8
DEFAULTING_TRIES = 3


class DefaultingCreator:
    """Creates objects of one resource: VMs, or VMIs, whose spec cannot be changed later."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        defaulter: Defaulter | None,
        seed: str,
        clock: Callable[[], float],
    ) -> None:
        self._api, self._resource, self._defaulter, self._seed, self._clock = api, resource, defaulter, seed, clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._present_until = float("-inf")
        self._absent = False
        self._opted_out_until: dict[str, tuple[bool, float]] = {}
        """By namespace: whether it has opted out, and until when this is believed."""

    async def __call__(self, documents: Sequence[Json]) -> list[Json]:
        """Returns the documents of one namespace with identity, and with defaults if the webhook does not add them.
        Raises InvalidDocument if the defaulter rejects the template, and ApiError if the API server refuses the dry run
        of the first document."""
        if not documents or not await self._defaults(documents[0]):
            return list(documents)
        found = list(documents)
        if self._resource.kind == "VirtualMachine":  # virt-api sets no identity in a VMI, so the webhook can
            found = [with_firmware_ids(document, self._seed) for document in documents]
        if await self._will_be_completed(found[0]):
            return found
        return list(await asyncio.gather(*map(self._completed, found)))

    async def create(self, document: Json) -> Json:
        """Creates a prepared document, and returns the stored object. Raises `InvalidDocument` and the API's errors."""
        if not await self._defaults(document):
            return await self._api.create(self._resource, document)
        if self._absent and undefaulted_fields(document):
            document = await self._completed(document)
        created = await self._api.create(self._resource, document)
        if undefaulted_fields(document):
            self._learn_from_answer(created)
        return await self._default_stored(created) if self._absent else created

    def _learn_from_answer(self, created: Json) -> None:
        """Records whether the webhook works, from the answer to an incomplete object."""
        self._absent = bool(undefaulted_fields(created))
        self._present_until = float("-inf") if self._absent else self._clock() + BELIEVED_SECONDS

    async def _defaults(self, document: Json) -> bool:
        """Whether objects of the document's namespace get default hardware."""
        return self._defaulter is not None and not await self._opted_out(document["metadata"]["namespace"])

    async def _default_stored(self, document: Json) -> Json:
        """Defaults a stored VM without a VMI, if it is not complete. A VM with a VMI would need a restart. After a
        failure, the defaulting controller retries."""
        if self._resource.kind != "VirtualMachine" or not undefaulted_fields(document):
            return document
        namespace, name = document["metadata"]["namespace"], document["metadata"]["name"]
        problem = "somebody else changes the VM"
        for _ in range(DEFAULTING_TRIES):
            try:
                completed = await self._completed(document)
                if undefaulted_fields(completed):
                    problem = "the defaulter could not complete the VM"
                    break
                completed = with_undefaulted(completed, None)
                return document if completed == document else await self._api.replace(self._resource, completed)
            except Conflict:
                document = await self._api.get(self._resource, namespace, name)
                if not undefaulted_fields(document):
                    return document
                if (document.get("status") or {}).get("created"):
                    problem = "the VM has started"
                    break
            except (InvalidDocument, ApiError) as error:
                problem = str(error)
                break
        log.warning("%s/%s: stays undefaulted for now: %s", namespace, name, problem)
        return document

    async def _will_be_completed(self, document: Json) -> bool:
        if self._clock() < self._present_until or not undefaulted_fields(document):
            return True
        answer = await self._api.create(self._resource, document, dry_run=True)
        self._learn_from_answer(answer)
        return not self._absent

    async def _opted_out(self, namespace: str) -> bool:
        known, until = self._opted_out_until.get(namespace, (None, 0.0))
        if known is not None and self._clock() < until:
            return known
        if known is not None:  # one call reads the namespace, and the others believe the former answer meanwhile
            self._opted_out_until[namespace] = known, self._clock() + BELIEVED_SECONDS
        try:
            metadata = (await self._api.get(NAMESPACES, None, namespace))["metadata"]
        except ApiError:
            self._opted_out_until.pop(namespace, None)
            return False
        found = (metadata.get("labels") or {}).get(meta.DEFAULTING) == meta.DISABLED
        now = self._clock()
        others = {name: each for name, each in self._opted_out_until.items() if now < each[1]}
        self._opted_out_until = {**others, namespace: (found, now + BELIEVED_SECONDS)}
        return found

    async def _completed(self, document: Json) -> Json:
        assert self._defaulter is not None
        namespace = document["metadata"]["namespace"]
        try:
            async with self._turns:
                answer = await self._defaulter.complete(document, namespace=namespace, seed=self._seed or None)
        except DefaulterUnavailable as away:
            log.warning("%s/%s: stays undefaulted for now: %s", namespace, document["metadata"]["name"], away)
            return with_undefaulted(document, away.reason[:200])
        return answer.object
