"""Finds VMs without some hardware fields, and fills these fields if the plan allows it."""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from controllers.defaulting.observe import (
    CONFIGURATIONS,
    MAC_INDEXES,
    VM,
    DefaultingSnapshot,
    Namespace,
    VMIState,
    mac_conflicts,
    observe,
    parse_namespace,
    parse_vm,
    vmi_state,
)
from controllers.defaulting.plan import (
    STOPS,
    FillHardware,
    KeepGuest,
    RemoveAnnotation,
    Wait,
    WebhookScope,
    ineligible_reason,
    needs_domain,
    parse_scope,
    plan,
)
from controllers.defaulting.running_domains import DomainReader
from controllers.shared.component import Component, ControllerContext
from controllers.shared.vm_reasons import VMEvent
from defaulter.contract import (
    Defaulter,
    DefaulterClient,
    DefaulterUnavailable,
    ForbiddenChange,
    InvalidDocument,
    MACPolicy,
    UndecidedDocument,
    adopt,
    undefaulted_fields,
)
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.vm_documents import may_have_run, with_firmware_uuid, with_undefaulted
from poolhouse.manifests.webhooks import DEFAULTING_CONFIGURATION
from poolhouse.runtime.api import Api
from poolhouse.runtime.backoff import hash_fraction
from poolhouse.runtime.circuit_breaker import CircuitBreaker
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import Invalid, NotFound
from poolhouse.runtime.events import EventRecorder, EventType, object_reference
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import NAMESPACES, VMS, Key


class DefaultingWriter:
    def __init__(self, api: Api, defaulter: DefaulterClient, events: EventRecorder, *, seed: str) -> None:
        self._api = api
        self._defaulter = defaulter
        self._events = events
        self._seed = seed or None

    async def fill(self, document: Json, request: Json, *, may_have_run: bool) -> Json | None:
        """Returns the VM with all hardware fields, or None and an event if the defaulter cannot fill them.

        `request` is the document for the defaulter, with known facts about the guest. It is the stored document too, so
        that the devices that have addresses keep them. Raises DefaulterUnavailable."""
        try:
            answer = await self._defaulter.complete(request, old=request, seed=self._seed, may_have_run=may_have_run)
        except (InvalidDocument, ForbiddenChange, UndecidedDocument) as error:
            self._undecided(document, str(error))
            return None
        if answer.object == document:
            fields = ", ".join(undefaulted_fields(document)[:3])
            why = "; ".join((f"the defaulter leaves {fields} empty", *answer.warnings))
            self._undecided(document, answer.undecided or why)
            return None
        return answer.object if answer.undecided else with_undefaulted(answer.object, None)

    async def write(self, document: Json, filled: Json, reason: str) -> None:
        """Replaces the VM. Raises Conflict if the VM has changed since the read."""
        try:
            # The document has the resourceVersion of the read, so that a write of another client is not lost.
            await self._api.replace(VMS, filled)
        except Invalid as error:
            self._undecided(document, f"the API server refuses the filled VM: {error.message}")
            return
        count = len(undefaulted_fields(document)) - len(undefaulted_fields(filled))
        self._emit(document, "Normal", VMEvent.HARDWARE_DECIDED, f"filled {count} hardware fields: {reason}")

    async def keep_guest(self, document: Json, kept: Json) -> Json:
        """Replaces the VM if its spec differs from its guest. Returns the stored VM. Raises Conflict if the VM has
        changed since the read."""
        if kept == document:
            return document
        try:
            stored = await self._api.replace(VMS, kept)
        except Invalid as error:
            self._undecided(document, f"the API server refuses the VM with the values of its guest: {error.message}")
            return document
        self._emit(document, "Normal", VMEvent.GUEST_KEPT, f"the spec has the values of the guest now: {STOPS}")
        return stored

    async def remove_annotation(self, document: Json) -> None:
        await self._api.replace(VMS, with_undefaulted(document, None))

    async def report_duplicate(self, key: Key, message: str) -> None:
        self._emit(await self._api.get(VMS, *key), "Warning", VMEvent.DUPLICATE_MAC, message)

    def _undecided(self, document: Json, note: str) -> None:
        self._emit(document, "Warning", VMEvent.HARDWARE_UNDECIDED, note)

    def _emit(self, document: Json, type: EventType, reason: VMEvent, note: str) -> None:
        self._events.emit(object_reference(document), type, reason, note, action="CompleteHardware")


log = logging.getLogger(__name__)

WORKERS = 8
SPREAD_SECONDS = 2.0
"""Time over which waiting VMs are sent to the defaulter after a pause."""


class DefaultingController:
    """Fills VMs. While all VMs are filled or ineligible, the controller sends no requests except its watches."""

    def __init__(
        self,
        api: Api,
        writer: DefaultingWriter,
        *,
        now: Callable[[], float],
        macs: MACPolicy = "deterministic",
    ) -> None:
        """`macs` is the defaulter's setting. With some values, the defaulter leaves MAC addresses empty."""
        self.vms: Informer[VM] = Informer(
            api, VMS, partial(parse_vm, macs=macs), indexes={**MAC_INDEXES, "pending": _index_pending}
        )
        self.namespaces: Informer[Namespace] = Informer(api, NAMESPACES, parse_namespace)
        self.scopes: Informer[WebhookScope] = Informer(api, CONFIGURATIONS, parse_scope, name=DEFAULTING_CONFIGURATION)
        self.controller: Controller[Key] = Controller(
            "defaulting", self.reconcile, workers=WORKERS, metrics=api.metrics
        )
        self.breaker = CircuitBreaker()
        self._api = api
        self._writer = writer
        self._now = now
        self._macs = macs
        self._reported: dict[Key, tuple[str, ...]] = {}
        """Messages about MAC addresses that have an event."""
        self.vms.subscribe(self._vm_changed)
        self.namespaces.subscribe(self._namespace_changed)
        self.scopes.subscribe(self._scope_changed)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return self.vms, self.namespaces, self.scopes

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"defaulting-{informer.resource.plural}")
            for informer in self.informers:
                await informer.synced()
            group.create_task(self.controller.run(), name="defaulting")

    def _vm_changed(self, old: VM | None, new: VM | None) -> None:
        if new is not None and (new.pending or new.key in self._reported or mac_conflicts(self.vms.store, new)):
            self.controller.enqueue(new.key)
        elif new is None and old is not None:
            self._reported.pop(old.key, None)

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        """Enqueues the VMs of the namespace, because its labels decide whether they are eligible."""
        if new is not None:
            for vm in self.vms.store.by("pending", new.name):
                self.controller.enqueue(vm.key)

    def _scope_changed(self, old: WebhookScope | None, new: WebhookScope | None) -> None:
        for vm in self.vms.store:
            if vm.pending:
                self.controller.enqueue(vm.key)

    async def reconcile(self, key: Key) -> float | None:
        known = self.vms.store.get(key)
        if known is None:
            return None
        await self._report_mac_conflicts(known)
        namespace = self.namespaces.store.get(("", known.namespace))
        # The event of an unknown namespace enqueues its VMs again.
        if namespace is None or isinstance(plan(self._snapshot(known, "absent", namespace)), Wait):
            return None
        # What a guest has must be written before its VMI is gone, and needs no defaulter.
        if known.undefaulted and not known.stopping and (pause := self._pause(key)):
            return pause
        observed = await observe(self._api, key, self._macs)
        if observed is None:
            return None
        vm, vmi, document = observed
        match plan(self._snapshot(vm, vmi_state(vmi), namespace)):
            case Wait(seconds):
                return seconds and seconds * (0.5 + hash_fraction("/".join(key)))
            case RemoveAnnotation():
                await self._writer.remove_annotation(document)
                return None
            case KeepGuest():
                await self._writer.keep_guest(document, adopt(document, vmi, self._macs))
                return None
            case FillHardware(reason):
                if vmi is not None:  # the VM may start again before the defaulter answers
                    document = await self._writer.keep_guest(document, adopt(document, vmi, self._macs))
                return await self._fill(key, document, vmi, reason)

    def _snapshot(self, vm: VM, vmi: VMIState, namespace: Namespace) -> DefaultingSnapshot:
        scope = self.scopes.store.get(("", DEFAULTING_CONFIGURATION))
        return DefaultingSnapshot(vm, vmi, ineligible_reason(vm, namespace.labels, scope))

    def needs_domain(self, key: Key) -> bool:
        """Whether the domain of the VM, if it runs, is to be read."""
        vm, namespace = self.vms.store.get(key), self.namespaces.store.get(("", key[0]))
        if vm is None or namespace is None:
            return False
        return needs_domain(vm, self._snapshot(vm, "running", namespace).ineligible)

    async def _report_mac_conflicts(self, vm: VM) -> None:
        found, reported = mac_conflicts(self.vms.store, vm), self._reported.pop(vm.key, ())
        for message in found:
            if message not in reported:
                with suppress(NotFound):
                    await self._writer.report_duplicate(vm.key, message)
        if found:
            self._reported[vm.key] = found

    async def _fill(self, key: Key, document: Json, vmi: Json | None, reason: str) -> float | None:
        started = may_have_run(document, going=vmi is not None)
        request = with_firmware_uuid(adopt(document, vmi, self._macs)) if started else document
        self.breaker, allowed = self.breaker.allow(self._now())
        if not allowed:
            return self._pause(key)
        try:
            filled = await self._writer.fill(document, request, may_have_run=started)
        except DefaulterUnavailable as error:
            self.breaker = self.breaker.failed(self._now())
            log.info("cannot fill the hardware of VM %s/%s: %s", *key, error.reason)
            return self._pause(key) or SPREAD_SECONDS
        self.breaker = self.breaker.succeeded()
        if filled is not None:
            await self._writer.write(document, filled, reason)
        return None

    def _pause(self, key: Key) -> float:
        wait = self.breaker.wait_seconds(self._now())
        return wait + SPREAD_SECONDS * hash_fraction("/".join(key)) if wait else 0.0


def _index_pending(vm: VM) -> Iterator[Hashable]:
    if vm.pending:
        yield vm.namespace


def build(
    context: ControllerContext,
    defaulter: Defaulter,
    macs: MACPolicy = "deterministic",
    read_domains: frozenset[str] = frozenset(),
) -> Component:
    """`read_domains` are the namespaces in which the controllers may read the domains of running VMs."""
    writer = DefaultingWriter(context.api, defaulter, context.events, seed=context.seed)
    controller = DefaultingController(context.api, writer, now=monotonic, macs=macs)
    if not read_domains:
        return Component("defaulting", controller.informers, controller.controller.run)
    reader = DomainReader(context.api, context.events, read_domains, controller.needs_domain)
    controller.vms.subscribe(reader.vm_changed)
    controller.namespaces.subscribe(lambda old, new: reader.scope_changed(new.name if new is not None else None))
    controller.scopes.subscribe(lambda old, new: reader.scope_changed())

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.controller.run(), name="defaulting")
            group.create_task(reader.controller.run(), name="domains")

    return Component("defaulting", (*controller.informers, reader.guests), work)
