"""DataVolumes and their claims: reads what is there, asks `volumes`, and does what it says."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from local.engine.documents import claim_of, difference
from local.engine.filler import Filler
from local.engine.resources import CLAIMS, CONTENT, DATA_VOLUMES
from local.engine.views import Claim, Disk, Pairs
from local.engine.volumes import Action, Bind, CreateClaim, Fill, step
from local.engine.world import World, now
from runtime.api import AlreadyExists, Api, Key, NotFound
from runtime.controller import Controller

log = logging.getLogger(__name__)

Json = dict[str, Any]


class Disks:
    def __init__(self, api: Api, world: World, filler: Filler, *, workers: int = 16) -> None:
        self._api = api
        self._world = world
        self._filler = filler
        self._dropped: asyncio.Queue[Claim] = asyncio.Queue()
        self.controller: Controller[Key] = Controller("disks", self.reconcile, workers=workers, metrics=api.metrics)
        world.disks.subscribe(self._changed)
        world.claims.subscribe(self._claim_changed)
        world.settings.subscribe(self._settings_changed)
        filler.subscribe(self.controller.enqueue)

    def _changed(self, old: Disk | None, new: Disk | None) -> None:
        if new is not None:
            self.controller.enqueue(new.key)

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        claim = new or old
        assert claim is not None
        self.controller.enqueue(claim.key)
        if old is not None and (new is None or new.uid != old.uid):
            self._dropped.put_nowait(old)

    def _settings_changed(self, old: Pairs | None, new: Pairs | None) -> None:
        for disk in self._world.disks.store.all():
            if not disk.ready:
                self.controller.enqueue(disk.key)

    async def clear(self) -> None:
        """For ever: removes the files of claims that are gone."""
        await self._filler.sweep(self._world.claims.store.all())
        while True:
            await self._filler.drop(await self._dropped.get())

    async def reconcile(self, key: Key) -> float | None:
        disk, claim = self._world.disks.store.get(key), self._world.claims.store.get(key)
        if disk is None and claim is not None and not claim.data_volume and claim.phase != "Bound":
            await self._bind(claim, claim.content or await self._filler.provide(claim))
        if disk is None or disk.ready:
            return None
        machine = self._world.machine_of(disk.owner)
        faults, _ = self._world.faults(machine.faults if machine is not None else ())
        wanted = step(disk, claim, self._filler.filling(disk, claim, faults, now()), now())
        for action in wanted.actions:
            await self._apply(action, disk, claim)
        await self._write(disk, wanted.status)
        return wanted.again_seconds

    async def _apply(self, action: Action, disk: Disk, claim: Claim | None) -> None:
        match action:
            case CreateClaim():
                await self._create_claim(disk)
            case Fill():
                assert claim is not None
                await self._filler.fill(disk, claim)
            case Bind(content):
                assert claim is not None
                await self._bind(claim, content)

    async def _create_claim(self, disk: Disk) -> None:
        document = await self._api.get(DATA_VOLUMES, *disk.key)
        if document["metadata"]["uid"] != disk.uid:
            return
        try:
            await self._api.create(CLAIMS, claim_of(document))
        except AlreadyExists:
            log.debug("%s/%s: its claim is there already", *disk.key)

    async def _bind(self, claim: Claim, content: str) -> None:
        if claim.content != content:
            annotated = {"metadata": {"uid": claim.uid, "annotations": {CONTENT: content}}}
            await self._api.patch(CLAIMS, *claim.key, annotated)
        status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": claim.size}}
        # The UID makes it this claim's alone: another of the same name has nothing in it yet.
        bound = {"metadata": {"uid": claim.uid}, "status": status}
        await self._api.patch(CLAIMS, *claim.key, bound, subresource="status")

    async def _write(self, disk: Disk, status: Json) -> None:
        patch = difference(disk.status, status)
        if not patch:
            return
        body = {"metadata": {"resourceVersion": disk.resource_version}, "status": patch}
        try:
            await self._api.patch(DATA_VOLUMES, *disk.key, body, subresource="status")
        except NotFound:
            log.debug("%s is gone", disk.name)
