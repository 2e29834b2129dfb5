"""Joins the parts: who is looked at, and when again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from controllers.completion.apply import Apply, Json
from controllers.completion.doubles import by_mac, doubles
from controllers.completion.observe import MACHINES, Machine, machine, observe
from controllers.completion.plan import Complete, DropNote, Wait, plan
from defaulter.contract import Away, Macs
from runtime.api import Api
from runtime.backoff import fraction
from runtime.breaker import Breaker
from runtime.controller import Controller
from runtime.errors import NotFound
from runtime.informer import Informer
from runtime.resource import Key

log = logging.getLogger(__name__)

SPREAD_SECONDS = 2.0
"""after a pause, over which VMs that waited for the defaulter come back to it"""


class Completion:
    """At rest, which is while every VM's hardware is decided, it reads nothing but the watch and writes nothing."""

    def __init__(
        self,
        api: Api,
        apply: Apply,
        *,
        now: Callable[[], float],
        macs: Macs = "deterministic",
        workers: int = 8,
    ) -> None:
        """`macs` as the defaulter has it: what it leaves open on purpose is not undecided."""
        self.machines: Informer[Machine] = Informer(api, MACHINES, partial(machine, macs=macs), indexes={"mac": by_mac})
        self.controller: Controller[Key] = Controller(
            "completion", self.reconcile, workers=workers, metrics=api.metrics
        )
        self.breaker = Breaker()
        self._api = api
        self._apply = apply
        self._now = now
        self._macs = macs
        self._doubles: dict[Key, tuple[str, ...]] = {}
        """what was said of VMs that have another's MAC address"""
        self.machines.subscribe(self._changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.machines.run(), name="completion-machines")
            group.create_task(self.controller.run(), name="completion")

    def _changed(self, old: Machine | None, new: Machine | None) -> None:
        if new is not None and (new.pending or new.key in self._doubles or doubles(self.machines.store, new)):
            self.controller.enqueue(new.key)
        elif new is None and old is not None:
            self._doubles.pop(old.key, None)

    async def reconcile(self, key: Key) -> float | None:
        known = self.machines.store.get(key)
        if known is None:
            return None
        await self._say_doubles(known)
        if not known.pending:
            return None
        if known.undefaulted and (pause := self._pause(key)):
            return pause
        observed = await observe(self._api, key, self._macs)
        if observed is None:
            return None
        state, document = observed
        match plan(state):
            case Wait(seconds):
                return seconds
            case DropNote():
                await self._apply.drop_note(document)
                return None
            case Complete(reason):
                return await self._complete(key, document, reason)

    async def _say_doubles(self, m: Machine) -> None:
        """Once, and again when it is another."""
        found, said = doubles(self.machines.store, m), self._doubles.pop(m.key, ())
        for sentence in found:
            if sentence not in said:
                with suppress(NotFound):
                    await self._apply.say_double(m.key, sentence)
        if found:
            self._doubles[m.key] = found

    async def _complete(self, key: Key, document: Json, reason: str) -> float | None:
        self.breaker, may = self.breaker.asked(self._now())
        if not may:
            return self._pause(key)
        try:
            completed = await self._apply.ask(document)
        except Away as away:
            self.breaker = self.breaker.failed(self._now())
            log.info("completion of %s/%s: %s", *key, away.reason)
            return self._pause(key) or SPREAD_SECONDS
        self.breaker = self.breaker.succeeded()
        if completed is not None:
            await self._apply.write(document, completed, reason)
        return None

    def _pause(self, key: Key) -> float:
        wait = self.breaker.wait_seconds(self._now())
        return wait + SPREAD_SECONDS * fraction("/".join(key)) if wait else 0.0
