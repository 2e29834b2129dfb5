"""Joins the parts: who is looked at, and when again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from controllers.defaulting.apply import Apply, Json
from controllers.defaulting.doubles import by_mac, doubles
from controllers.defaulting.observe import (
    CONFIGURATIONS,
    MACHINES,
    NAMESPACES,
    Instance,
    Machine,
    Namespace,
    State,
    machine,
    namespace,
    observe,
)
from controllers.defaulting.plan import Complete, DropNote, Wait, plan
from controllers.defaulting.registration import Registration, left_alone, registration
from defaulter.contract import DefaulterUnavailable, MACPolicy
from kinds.vm_documents import may_have_run, with_firmware_uuid
from manifests.webhooks import DEFAULTING_CONFIGURATION
from runtime.api import Api
from runtime.backoff import hash_fraction
from runtime.circuit_breaker import CircuitBreaker
from runtime.controller import Controller
from runtime.errors import NotFound
from runtime.informer import Informer
from runtime.resource import Key

log = logging.getLogger(__name__)

SPREAD_SECONDS = 2.0
"""after a pause, over which VMs that waited for the defaulter come back to it"""


class Completion:
    """At rest, which is while every VM's hardware is decided or not ours to decide, it reads nothing but watches and
    writes nothing."""

    def __init__(
        self,
        api: Api,
        apply: Apply,
        *,
        now: Callable[[], float],
        macs: MACPolicy = "deterministic",
        workers: int = 8,
    ) -> None:
        """`macs` as the defaulter has it: what it leaves open on purpose is not undecided."""
        self.machines: Informer[Machine] = Informer(
            api, MACHINES, partial(machine, macs=macs), indexes={"mac": by_mac, "pending": _pending}
        )
        self.namespaces: Informer[Namespace] = Informer(api, NAMESPACES, namespace)
        self.registered: Informer[Registration] = Informer(
            api, CONFIGURATIONS, registration, name=DEFAULTING_CONFIGURATION
        )
        self.controller: Controller[Key] = Controller(
            "completion", self.reconcile, workers=workers, metrics=api.metrics
        )
        self.breaker = CircuitBreaker()
        self._api = api
        self._apply = apply
        self._now = now
        self._macs = macs
        self._doubles: dict[Key, tuple[str, ...]] = {}
        """what was said of VMs that have another's MAC address"""
        self.machines.subscribe(self._changed)
        self.namespaces.subscribe(self._namespace_changed)
        self.registered.subscribe(self._registration_changed)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return self.machines, self.namespaces, self.registered

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"completion-{informer.resource.plural}")
            for informer in self.informers:
                await informer.synced()
            group.create_task(self.controller.run(), name="completion")

    def _changed(self, old: Machine | None, new: Machine | None) -> None:
        if new is not None and (new.pending or new.key in self._doubles or doubles(self.machines.store, new)):
            self.controller.enqueue(new.key)
        elif new is None and old is not None:
            self._doubles.pop(old.key, None)

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        """It may have opted out, or in, or be selected otherwise."""
        if new is not None:
            for m in self.machines.store.by("pending", new.name):
                self.controller.enqueue(m.key)

    def _registration_changed(self, old: Registration | None, new: Registration | None) -> None:
        for m in self.machines.store:
            if m.pending:
                self.controller.enqueue(m.key)

    async def reconcile(self, key: Key) -> float | None:
        known = self.machines.store.get(key)
        if known is None:
            return None
        await self._say_doubles(known)
        where = self.namespaces.store.get(("", known.namespace))
        # A namespace that is not heard of yet has its VMs looked at when it is.
        if where is None or isinstance(plan(self._state(known, "none", where)), Wait):
            return None
        if known.undefaulted and (pause := self._pause(key)):
            return pause
        observed = await observe(self._api, key, self._macs)
        if observed is None:
            return None
        found, instance, document = observed
        match plan(self._state(found, instance, where)):
            case Wait(seconds):
                return seconds and seconds * (0.5 + hash_fraction("/".join(key)))
            case DropNote():
                await self._apply.drop_note(document)
                return None
            case Complete(reason):
                asked = with_firmware_uuid(document) if may_have_run(document, going=instance == "going") else document
                return await self._complete(key, document, asked, reason)

    def _state(self, m: Machine, instance: Instance, where: Namespace) -> State:
        return State(
            m, instance, left_alone(m, where.labels, self.registered.store.get(("", DEFAULTING_CONFIGURATION)))
        )

    async def _say_doubles(self, m: Machine) -> None:
        """Once, and again when it is another."""
        found, said = doubles(self.machines.store, m), self._doubles.pop(m.key, ())
        for sentence in found:
            if sentence not in said:
                with suppress(NotFound):
                    await self._apply.say_double(m.key, sentence)
        if found:
            self._doubles[m.key] = found

    async def _complete(self, key: Key, document: Json, asked: Json, reason: str) -> float | None:
        self.breaker, may = self.breaker.allow(self._now())
        if not may:
            return self._pause(key)
        try:
            completed = await self._apply.ask(document, asked)
        except DefaulterUnavailable as away:
            self.breaker = self.breaker.failed(self._now())
            log.info("completion of %s/%s: %s", *key, away.reason)
            return self._pause(key) or SPREAD_SECONDS
        self.breaker = self.breaker.succeeded()
        if completed is not None:
            await self._apply.write(document, completed, reason)
        return None

    def _pause(self, key: Key) -> float:
        wait = self.breaker.wait_seconds(self._now())
        return wait + SPREAD_SECONDS * hash_fraction("/".join(key)) if wait else 0.0


def _pending(m: Machine) -> Iterator[Hashable]:
    if m.pending:
        yield m.namespace
