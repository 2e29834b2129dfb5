"""Histories of one replica set."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

from controllers.replicaset.controller import build as build_replica_set
from controllers.replicaset.observe import REPLICA_SETS, parse_replica
from controllers.shared.component import Component, ControllerContext
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kubevirt.meaning import VMI_TEMPLATE
from poolhouse.manifests.crd import crd
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import CRDS, VMIS
from tests.cluster.budget import SEEN_SECONDS
from tests.cluster.replicating import LABELS, Place, the_set
from tests.histories.api_server import Change
from tests.histories.history import Act, History
from tests.histories.others import respell_template
from tests.histories.world import HERE, World
from tests.planning import InlinePlanner

Json = dict[str, Any]

MAX_REPLICAS = 8
VMI_RESOURCE = "virtualmachineinstances.kubevirt.io"


def build(api: Api, events: EventRecorder, process: str) -> Component:
    return build_replica_set(ControllerContext(api=api, events=events, planner=InlinePlanner(Random(process))))


class ReplicaSetHistory(History):
    """The set deletes only VMIs that it owns and that its selector matches, and creates no more than are asked for."""

    build = staticmethod(build)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.place = Place(world.api("users"), HERE)
        self.uid = ""
        self.wanted = 0
        self.extra = 0
        """VMIs that users gave to the set, or took from it for a time."""
        self.created: list[tuple[float, str]] = []
        """VMIs that a process has created in the last second: when, and which."""
        self.brought = 0

    async def begin(self) -> None:
        await self.place.api.create(CRDS, crd(REPLICA_SET))
        self.uid = (await self.place.make(3))["metadata"]["uid"]

    def saw(self, change: Change) -> list[str]:
        if change.plural != VMI_RESOURCE:
            return []
        name, found = change.document["metadata"]["name"], []
        if change.begins_deletion and change.actor.startswith("controllers"):
            assert change.old is not None
            before = parse_replica(change.old)
            if before.owner_uid != self.uid:
                found.append(f"{name} was deleted, and the set does not own it")
            if before.labels.get("app") != LABELS["app"]:
                found.append(f"{name} was deleted, and the selector does not match it")
        members = [
            each
            for each in map(parse_replica, self.world.server.objects(VMI_RESOURCE))
            if each.owner_uid == self.uid and not (each.final or each.unknown or each.deleting)
        ]
        if change.old is None and change.actor.startswith("controllers"):
            now = asyncio.get_running_loop().time()
            self.created = [each for each in self.created if now - each[0] < SEEN_SECONDS]
            # Another leader may not see them yet, and names are generated, so that the API server refuses none.
            unseen = sum(actor != change.actor for _, actor in self.created)
            self.created.append((now, change.actor))
            limit = MAX_REPLICAS + self.extra + unseen
            if len(members) > limit:
                found.append(f"{len(members)} VMIs, and at most {limit} were ever asked for")
        return found

    async def act(self) -> str:
        acts: list[Act] = [
            self.scale,
            self.scale,
            self.change_template,
            self.pause,
            self.crash,
            self.relabel,
            self.disown,
            self.delete,
            self.bring,
            self.respell,
        ]
        return await self.world.random.choice(acts)()

    def script(self) -> list[Act]:
        return [self.scale, self.crash, self.relabel, self.bring, self.disown, self.delete]

    async def scale(self) -> str:
        self.wanted = self.world.random.randint(0, MAX_REPLICAS)
        await self.place.change(replicas=self.wanted)
        return f"scale to {self.wanted}"

    async def change_template(self) -> str:
        faults = self.world.random.choice(
            [{}, {"fail-rate": "0.5"}, {"crash-seconds": "20"}, {"start-seconds": "15"}, {"fail": "ErrImagePull"}]
        )
        await self._template(faults)
        return f"template with {faults}"

    async def _template(self, faults: dict[str, str]) -> None:
        template = the_set(HERE, 0)["spec"]["template"]
        annotations = {meta.SIM_PREFIX + key: value for key, value in faults.items()}
        removed = {meta.SIM_PREFIX + key: None for key in ("fail-rate", "crash-seconds", "start-seconds", "fail")}
        template["metadata"] = {"labels": LABELS, "annotations": removed | annotations}
        await self.place.change(template=template)

    async def respell(self) -> str:
        return await respell_template(self.place.api, REPLICA_SETS, (HERE, "web"), VMI_TEMPLATE, self.world.random)

    async def pause(self) -> str:
        paused = self.world.random.random() < 0.3
        await self.place.change(paused=paused)
        return f"paused {paused}"

    async def crash(self) -> str:
        if not (name := await self._any()):
            return ""
        notes = {meta.SIM_PREFIX + "crash-seconds": "1"}
        await self.place.api.patch(VMIS, HERE, name, {"metadata": {"annotations": notes}})
        return f"crash {name}"

    async def relabel(self) -> str:
        if not (name := await self._any()):
            return ""
        label = self.world.random.choice([LABELS["app"], "debug"])
        self.extra += 1
        await self.place.relabel(name, app=label)
        return f"label {name} app={label}"

    async def disown(self) -> str:
        if not (name := await self._any()):
            return ""
        self.extra += 1
        await self.place.api.patch(VMIS, HERE, name, {"metadata": {"ownerReferences": None}})
        return f"disown {name}"

    async def delete(self) -> str:
        if not (name := await self._any()):
            return ""
        await self.place.api.delete(VMIS, HERE, name)
        return f"delete {name}"

    async def bring(self) -> str:
        self.brought += 1
        self.extra += 1
        labels = self.world.random.choice([LABELS, {"app": "db"}])
        await self.place.vmi(f"brought-{self.brought}", labels=labels)
        return f"VMI brought-{self.brought} with {labels}"

    async def _any(self) -> str:
        names = sorted(await self.place.names())
        return self.world.random.choice(names) if names else ""

    async def make_peace(self) -> None:
        self.wanted = 4
        await self._template({})
        await self.place.change(replicas=self.wanted, paused=False)
        for name in await self.place.names():
            notes = dict.fromkeys(meta.SIM_PREFIX + key for key in ("fail-rate", "crash-seconds", "fail"))
            with suppress(ApiError):
                await self.place.api.patch(VMIS, HERE, name, {"metadata": {"annotations": notes}})

    async def why_not_at_rest(self) -> str:
        status = (await self.place.seen()).get("status") or {}
        if (status.get("replicas"), status.get("readyReplicas")) != (self.wanted, self.wanted):
            return f"{self.wanted} VMIs are asked for, the status is {status}"
        return ""
