"""Creates VMs and VMIs with default hardware, even while the webhook is unavailable.

KubeVirt may start a VM at once, so defaulting after the creation is too late. A dry run of one object, at most twice a
minute, shows whether the webhook works. While the webhook does not work, this client sends the objects to the defaulter
itself. If the webhook fails during a batch, the API server's responses show this. The client then defaults the rest of
the batch first, and VMs that were created undefaulted at once.

While the webhook works, its answers are remembered for half a minute by the shape of a VM. Further VMs of a pool are
created complete, and the API server does not call the webhook for them (`poolhouse.manifests.webhooks`): the call would
take a third of the processor time of the creation. If another webhook changes such a VM, its defaults are chosen again,
and nothing is remembered of its shape for ten minutes. Only VMs that are stored teach: other webhooks may skip dry
runs.

KubeVirt's virt-api gives a new VM a random firmware UUID and serial before the webhook is called. VMs of Poolhouse
therefore get theirs before they are created. A VM that replaces one of the same name has the same UUID and serial.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from controllers.shared.hardware_reports import ReportKept
from defaulter.contract import (
    Defaulter,
    DefaulterUnavailable,
    InvalidDocument,
    KnownShapes,
    NewVM,
    undefaulted_fields,
    with_firmware_ids,
    without_answer,
)
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.vm_documents import with_undefaulted
from poolhouse.manifests.webhooks import always_reviewed
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Conflict
from poolhouse.runtime.resource import NAMESPACES, Resource

log = logging.getLogger(__name__)

BELIEVED_SECONDS = 30.0
AT_ONCE = 8
DEFAULTING_TRIES = 3
REFUSALS = (400, 403, 422)
"""HTTP status codes with which the API server refuses an object, by its own checks, a webhook or a policy"""


class DefaultingCreator:
    """Creates objects of one resource: VMs, or VMIs, whose spec cannot be changed later."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        defaulter: Defaulter | None,
        seed: str,
        clock: Callable[[], float],
        report_kept: ReportKept = lambda vm, why: None,
    ) -> None:
        self._api, self._resource, self._defaulter, self._seed, self._clock = api, resource, defaulter, seed, clock
        self._report_kept = report_kept
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._present_until = float("-inf")
        self._absent = False
        self._opted_out_until: dict[str, tuple[bool, float]] = {}
        """By namespace: whether it has opted out, and until when this is believed."""
        self._known_shapes = KnownShapes(clock)
        self._first_answers: dict[bytes, asyncio.Event] = {}
        """By shape: the end of the creation of its first VM."""

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
        vm = await self._new_vm(document)
        if vm is None or self._absent or not self._known_shapes.is_new(vm):
            return await self._create(vm, document)
        if (answered := self._first_answers.get(vm.shape)) is not None:
            await answered.wait()
            return await self._create(vm, document)
        # A pool creates hundreds of VMs at once. The others wait for what the first one teaches.
        answered = self._first_answers[vm.shape] = asyncio.Event()
        try:
            return await self._create(vm, document)
        finally:
            del self._first_answers[vm.shape]
            answered.set()

    async def _create(self, vm: NewVM | None, document: Json) -> Json:
        known, refused = self._known_shapes.find(vm) if vm is not None else None, False
        if vm is not None and known is not None:
            try:
                return await self._create_known(vm, known.apply(vm))
            except ApiError as error:
                if error.status not in REFUSALS:
                    raise
                refused = True
        incomplete = bool(undefaulted_fields(document))
        if self._absent and incomplete:
            document = await self._completed(document)
        created = await self._api.create(self._resource, document)
        # A quota would have refused this VM, too. A complete template teaches nothing.
        if vm is not None and (refused or not incomplete):
            self._known_shapes.ignore(vm)
        if undefaulted_fields(document):
            self._learn_from_answer(vm, created)
        return await self._default_stored(created) if self._absent else created

    async def _create_known(self, vm: NewVM, completed: Json) -> Json:
        """Creates a VM with the defaults that admission has set in an earlier VM of its shape."""
        # The explicit field manager is what the match condition of the webhook looks for.
        created = await self._api.create(self._resource, completed, field_manager=meta.CONTROLLERS)
        if self._known_shapes.confirm(vm, completed, created):
            return created
        where = "{namespace}/{name}".format_map(created["metadata"])
        log.info("%s: another webhook has changed the VM, so VMs of its shape are reviewed one by one", where)
        return await self._default_stored(created, lambda stored: without_answer(vm, completed, stored))

    async def _new_vm(self, document: Json) -> NewVM | None:
        """Returns the VM with its shape. The metadata belongs to the shape, because webhooks may select objects by it.
        Returns None for a VMI, whose processors and memory virt-api sets, and for a VM marked as undefaulted."""
        assert self._defaulter is not None
        metadata = document["metadata"]
        if self._resource.kind != "VirtualMachine" or meta.UNDEFAULTED in (metadata.get("annotations") or {}):
            return None
        namespace, also = metadata["namespace"], [metadata.get(each) for each in ("namespace", "labels", "annotations")]
        return await self._defaulter.new_vm(document, namespace, self._seed or None, also=also)

    def _learn_from_answer(self, vm: NewVM | None, created: Json) -> None:
        """Records whether the webhook works, and what it has set in a VM, from the answer to an incomplete object."""
        self._absent = bool(undefaulted_fields(created))
        self._present_until = float("-inf") if self._absent else self._clock() + BELIEVED_SECONDS
        annotations = created["metadata"].get("annotations") or {}
        if vm is None or self._absent:
            return
        if meta.UNDEFAULTED in annotations or always_reviewed(created):
            self._known_shapes.ignore(vm)
        else:
            self._known_shapes.learn_stored(vm, created)

    async def _defaults(self, document: Json) -> bool:
        """Whether objects of the document's namespace get default hardware."""
        return self._defaulter is not None and not await self._opted_out(document["metadata"]["namespace"])

    async def _default_stored(self, document: Json, given: Callable[[Json], Json] | None = None) -> Json:
        """Defaults a stored VM without a VMI, if it is not complete. A VM with a VMI would need a restart. After a
        failure, the defaulting controller retries for a VM that is not complete. `given` returns a VM that was sent
        complete and that another webhook has changed as it was before: all its defaults are chosen again."""
        if self._resource.kind != "VirtualMachine" or not (given or undefaulted_fields(document)):
            return document
        namespace, name = document["metadata"]["namespace"], document["metadata"]["name"]
        problem = "somebody else changes the VM"
        for _ in range(DEFAULTING_TRIES):
            try:
                completed = await self._completed(given(document) if given else document)
                if undefaulted_fields(completed):
                    problem = "the defaulter could not complete the VM"
                    break
                completed = with_undefaulted(completed, None)
                return document if completed == document else await self._api.replace(self._resource, completed)
            except Conflict:
                document = await self._api.get(self._resource, namespace, name)
                if not (given or undefaulted_fields(document)):
                    return document
                if (document.get("status") or {}).get("created"):
                    problem = "the VM has started"
                    break
            except (InvalidDocument, ApiError) as error:
                problem = str(error)
                break
        log.warning("%s/%s: keeps its hardware for now: %s", namespace, name, problem)
        self._report_kept(document, problem)
        return document

    async def _will_be_completed(self, document: Json) -> bool:
        if self._clock() < self._present_until or not undefaulted_fields(document):
            return True
        answer = await self._api.create(self._resource, document, dry_run=True)
        self._learn_from_answer(None, answer)
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
