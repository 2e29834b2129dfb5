"""People, faults and crashes in random order around one pool, and what must hold whatever they do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from controllers.pool.stores import CLAIMS, MACHINES
from kinds import meta
from runtime.api import ApiError, Expired, NotFound, Resource
from tests.cluster.pooling import Place, template

Json = dict[str, Any]

STUCK = "example.com/stuck"
MOST = 12


@dataclass
class Witness:
    """Sees every event of the namespace, and keeps what must never be."""

    place: Place
    chance: Random
    pool_uid: str
    wrong: list[str] = field(default_factory=list)
    ours: dict[str, str] = field(default_factory=dict)
    """UIDs of VMs that the pool owned at their last event: name"""
    free: set[str] = field(default_factory=set)
    """UIDs of VMs that are not the pool's, and that nobody here has deleted"""
    kept: dict[str, str] = field(default_factory=dict)
    """names of kept claims: for which VM"""
    most: int = 0
    """VMs that the pool was ever meant to have, and those that were given to it"""

    async def watch(self, resource: Resource, saw: Callable[[str, Json], None]) -> None:
        """From before anything happens, without a gap."""
        _, version = await self.place.api.list(resource, self.place.namespace)
        while True:
            events = self.place.api.watch(
                resource, self.place.namespace, resource_version=version, timeout_seconds=3600, quiet_seconds=3600
            )
            try:
                async with aclosing(events):
                    async for kind, document in events:
                        version = document["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            saw(kind, document)
            except Expired:
                raise
            except ApiError:
                await asyncio.sleep(0.1)

    def machine(self, kind: str, document: Json) -> None:
        metadata = document["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        owners = [each for each in metadata.get("ownerReferences") or () if each.get("controller")]
        owned = bool(owners) and owners[0]["uid"] == self.pool_uid
        if uid in self.free and (kind == "DELETED" or metadata.get("deletionTimestamp")):
            self.wrong.append(f"{name} is not the pool's and was deleted")
            self.free.discard(uid)
        if kind == "DELETED" or metadata.get("deletionTimestamp"):
            self.ours.pop(uid, None)
        elif owned:
            self.ours[uid] = name
        else:
            self.ours.pop(uid, None)
        alive = list(self.ours.values())
        if len(alive) != len(set(alive)):
            self.wrong.append(f"two VMs of one name: {sorted(alive)}")
        if len(alive) > self.most:
            self.wrong.append(f"{len(alive)} VMs, at most {self.most} were ever wanted: {sorted(alive)}")

    def claim(self, kind: str, document: Json) -> None:
        metadata = document["metadata"]
        name, labels = metadata["name"], metadata.get("labels") or {}
        if name in self.kept and (kind == "DELETED" or metadata.get("deletionTimestamp")):
            self.wrong.append(f"{name} was kept for {self.kept.pop(name)} and was deleted")
        elif meta.KEPT_BY in labels:
            self.kept[name] = labels.get(meta.KEPT_FOR, "")
            if labels[meta.KEPT_BY] != self.pool_uid:
                self.wrong.append(f"{name} is kept by {labels[meta.KEPT_BY]}, which is no pool of ours")
        else:
            self.kept.pop(name, None)


@dataclass
class People:
    """What users do. Each act is a method; all of them may fail for being too late."""

    place: Place
    chance: Random
    witness: Witness
    wanted: int
    log: list[str] = field(default_factory=list)
    strangers: int = 0

    async def act(self) -> None:
        act: Callable[[], Awaitable[str]] = self.chance.choice(
            [
                self.scale,
                self.scale,
                self.scale,
                self.change_template,
                self.change_template,
                self.pause,
                self.preserve,
                self.delete_one,
                self.detach,
                self.attach,
                self.relabel,
                self.protect,
                self.stick,
                self.unstick,
                self.stranger,
            ]
        )
        with suppress(ApiError):
            if said := await act():
                self.log.append(said)

    async def scale(self) -> str:
        self.wanted = self.chance.choice([0, 1, 3, 5, MOST])
        self.witness.most = max(self.witness.most, self.wanted)
        await self.place.change(replicas=self.wanted)
        return f"scale to {self.wanted}"

    async def change_template(self) -> str:
        size = self.chance.choice(["64Mi", "96Mi", "128Mi"])
        await self.place.change(template=sized(size))
        return f"template {size}"

    async def pause(self) -> str:
        paused = self.chance.random() < 0.3
        await self.place.change(paused=paused)
        return f"paused {paused}"

    async def preserve(self) -> str:
        how = self.chance.choice(["Offline", "Disabled"])
        order = self.chance.choice(["Oldest", "Newest", "Random"])
        policy = {"statePreservation": how, "selectionPolicy": {"basePolicy": order}}
        await self.place.change(scaleInStrategy={"proactive": policy})
        return f"{how}, {order}"

    async def delete_one(self) -> str:
        if not (member := self._member()):
            return ""
        await self.place.api.delete(MACHINES, self.place.namespace, member)
        return f"delete {member}"

    async def detach(self) -> str:
        if not (member := self._member()):
            return ""
        document = await self.place.api.get(MACHINES, self.place.namespace, member)
        metadata = document["metadata"]
        # One that is on its way out, or marked for it, may go: that was decided while it was the pool's.
        if metadata.get("deletionTimestamp") or meta.KEEP_DISKS in (metadata.get("finalizers") or ()):
            return ""
        change = {"resourceVersion": metadata["resourceVersion"], "ownerReferences": None}
        await self.place.meta(member, **change)
        self.witness.free.add(metadata["uid"])
        return f"detach {member}"

    async def attach(self) -> str:
        for name, document in (await self.place.machines()).items():
            metadata = document["metadata"]
            if metadata["uid"] in self.witness.free and (metadata.get("labels") or {}).get(meta.POOL) == "web":
                owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachinePool", "name": "web"}
                owner |= {"uid": self.witness.pool_uid, "controller": True, "blockOwnerDeletion": True}
                self.witness.free.discard(metadata["uid"])
                self.witness.most += 1
                await self.place.meta(name, ownerReferences=[owner])
                return f"attach {name}"
        return ""

    async def relabel(self) -> str:
        if not (member := self._member()):
            return ""
        change = self.chance.choice([{meta.POOL: None}, {meta.POOL: "other"}, {meta.REVISION: "none"}, {"mine": "yes"}])
        await self.place.meta(member, labels=change)
        return f"label {member} {change}"

    async def protect(self) -> str:
        if not (member := self._member()):
            return ""
        how = self.chance.choice(["Protect", "First", None, None])
        await self.place.meta(member, annotations={meta.SCALE_IN: how})
        return f"{member} {how}"

    async def stick(self) -> str:
        if not (member := self._member()):
            return ""
        document = await self.place.api.get(MACHINES, self.place.namespace, member)
        have = document["metadata"].get("finalizers") or []
        change = {"resourceVersion": document["metadata"]["resourceVersion"], "finalizers": [*have, STUCK]}
        await self.place.meta(member, **change)
        return f"stick {member}"

    async def unstick(self) -> str:
        for name, document in (await self.place.machines()).items():
            have = document["metadata"].get("finalizers") or []
            if STUCK in have:
                left = [each for each in have if each != STUCK]
                version = document["metadata"]["resourceVersion"]
                await self.place.meta(name, resourceVersion=version, finalizers=left)
                return f"unstick {name}"
        return ""

    async def stranger(self) -> str:
        if self.strangers >= 2:
            return ""
        ordinal = self.chance.randint(1, MOST)
        made = await self.place.vm(f"web-{ordinal}", labels={meta.POOL: "web"})
        self.strangers += 1
        self.witness.free.add(made["metadata"]["uid"])
        return f"stranger web-{ordinal}"

    def _member(self) -> str:
        return self.chance.choice(sorted(self.witness.ours.values())) if self.witness.ours else ""

    async def make_peace(self) -> None:
        """Everything that would hold the pool up for ever is taken back."""
        while await insisted(self.unstick):
            pass
        for name in await insisted(self.place.machines):
            with suppress(NotFound):
                await self.place.meta(name, annotations={meta.SCALE_IN: None})
        self.wanted = 5
        self.witness.most = max(self.witness.most, 5)
        await self.place.change(replicas=5, paused=False, template=sized("80Mi"))


async def insisted(call: Callable[[], Awaitable[Any]]) -> Any:
    while True:
        try:
            return await call()
        except ApiError:
            await asyncio.sleep(0.2)


def sized(memory: str) -> Json:
    found = template()
    found["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": memory}
    return found


async def witnessed(place: Place, chance: Random, uid: str, most: int, group: asyncio.TaskGroup) -> Witness:
    witness = Witness(place, chance, uid, most=most)
    for resource, saw in ((MACHINES, witness.machine), (CLAIMS, witness.claim)):
        group.create_task(witness.watch(resource, saw))
    await asyncio.sleep(0.5)
    return witness
