"""People, faults and crashes in random order around one pool, and what must hold whatever they do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Any

from controllers.shared.sources import DATA_VOLUMES
from controllers.shared.vm import parse_vm
from controllers.shared.vmi import parse_vmi
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Expired, NotFound
from poolhouse.runtime.resource import CONFIG_MAPS, PVCS, VMIS, VMS, Resource
from tests.builders import owned_by
from tests.cluster.budget import Budget
from tests.cluster.pooling import PATIENCE_SECONDS, Place, template
from tests.resources import QUOTAS

Json = dict[str, Any]

STUCK = "example.com/stuck"
MOST = 12
TOLERATED = 2
QUOTA = "few"
SELECTORS: list[list[Json]] = [
    [],
    [],
    [{}],
    [{"matchLabels": {"no": "vm"}}],
    [{"matchLabels": {"mine": "yes"}}, {}, {"matchLabels": {meta.POOL: "web"}}],
    [{"matchExpressions": [{"key": "mine", "operator": "DoesNotExist"}]}],
]
"""of ordered policies: none, all, nobody, overlapping, and those whom nobody has labelled"""
BROKEN = {
    "sim.poolhouse.dev/fail": "CrashLoopBackOff",
    "sim.poolhouse.dev/fail-times": "2",
    "sim.poolhouse.dev/retry-seconds": "0.2",
}


def seed() -> int:
    """What POOLHOUSE_CHAOS_SEED says: a number, or `any` for another one in each run. Else the same one in each, so
    that what is red is what was changed."""
    said = os.environ.get("POOLHOUSE_CHAOS_SEED") or "7"
    return SystemRandom().randrange(10**6) if said == "any" else int(said)


@asynccontextmanager
async def watched(
    api: Api, resource: Resource, namespace: str, saw: Callable[[str, Json], None]
) -> AsyncIterator[asyncio.Task[None]]:
    """Every event from before the block begins until it ends, without a gap."""
    _, version = await api.list(resource, namespace)
    watching = asyncio.create_task(_watch(api, resource, namespace, version, saw))
    try:
        yield watching
        assert not watching.done(), f"nobody was watching {resource.plural}: {watching}"
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(api: Api, resource: Resource, namespace: str, version: str, saw: Callable[[str, Json], None]) -> None:
    while True:
        events = api.watch(
            resource, namespace, resource_version=version, timeout_seconds=3600, idle_timeout_seconds=3600
        )
        try:
            async with aclosing(events):
                async for kind, document in events:
                    version = document["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        saw(kind, document)
        except Expired:  # something was missed
            raise
        except ApiError:
            await asyncio.sleep(0.1)


@dataclass
class Witness:
    """Sees every event of the namespace, and keeps what must never be."""

    place: Place
    pool_uid: str
    tolerated: int
    wrong: list[str] = field(default_factory=list)
    ours: dict[str, str] = field(default_factory=dict)
    """UIDs of VMs that the pool owned at their last event: name"""
    free: set[str] = field(default_factory=set)
    """UIDs of VMs that are not the pool's, and that nobody here has deleted"""
    kept: dict[str, str] = field(default_factory=dict)
    """names of kept claims: for which VM"""
    most: int = 0
    """VMs that the pool was ever meant to have, and those that were given to it"""
    attached: int = 0
    """VMs that users have attached to the pool, which it may not see yet when it is scaled"""
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(asyncio.get_running_loop().time, self.pool_uid, self.tolerated)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """From before anything happens, without a gap."""
        async with AsyncExitStack() as stack:
            for resource, saw in ((VMS, self.machine), (VMIS, self.guest), (PVCS, self.claim)):
                await stack.enter_async_context(watched(self.place.api, resource, self.place.namespace, saw))
            yield

    def limit(self) -> int:
        return self.most

    def may_have(self, vms: int) -> None:
        self.most = max(self.most, vms + self.attached)

    def guest(self, kind: str, document: Json) -> None:
        if said := self.budget.vmi_seen(parse_vmi(document), kind == "DELETED"):
            self.wrong.append(said)

    def machine(self, kind: str, document: Json) -> None:
        if said := self.budget.vm_seen(parse_vm(document), kind == "DELETED"):
            self.wrong.append(said)
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
        if len(alive) > self.limit():
            self.wrong.append(f"{len(alive)} VMs, at most {self.limit()} were ever wanted: {sorted(alive)}")

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
    wanted: int = 0
    log: list[str] = field(default_factory=list)
    strangers: int = 0
    somebody: str | None = None
    """UID of another owner of VMs"""

    @property
    def budget(self) -> Budget:
        return self.witness.budget

    @property
    def _here(self) -> Json:
        return {"namespace": self.place.namespace}

    async def act(self) -> str:
        """Returns what was done, or nothing."""
        said = await self.chance.choice(self.acts())()
        if said:
            self.log.append(said)
        return said

    def acts(self) -> list[Callable[[], Awaitable[str]]]:
        """An act that is listed twice is done twice as often."""
        return [
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
            self.adopt,
            self.relabel,
            self.break_one,
            self.protect,
            self.quota,
            self.stick,
            self.stick_disk,
            self.unstick,
            self.stranger,
        ]

    async def scale(self, wanted: int | None = None) -> str:
        self.wanted = self.chance.choice([0, 1, 3, 5, MOST]) if wanted is None else wanted
        self.witness.may_have(self.wanted)
        # Before and after: until the answer is here, it may hold already or not yet.
        self.budget.wants(self.wanted)
        await self.place.change(replicas=self.wanted)
        self.budget.wants(self.wanted)
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
        first = self.chance.choice(SELECTORS)
        selection = {"basePolicy": order, "orderedPolicies": [{"labelSelector": each} for each in first]}
        strategy = {"proactive": {"statePreservation": how, "selectionPolicy": selection}}
        await self.place.change(scaleInStrategy=strategy, updateStrategy={"proactive": {"selectionPolicy": selection}})
        return f"{how}, {first}, {order}"

    async def delete_one(self) -> str:
        if not (member := self._member()):
            return ""
        document = await self.place.api.get(VMS, self.place.namespace, member)
        self.budget.spared.add(uid := document["metadata"]["uid"])
        await self.place.api.delete(VMS, self.place.namespace, member, uid=uid)
        return f"delete {member}"

    async def break_one(self) -> str:
        """It fails to start again twice, which is too often."""
        if not (member := self._member()):
            return ""
        await self.place.meta(member, annotations=BROKEN)
        run = await self.place.api.get(VMIS, self.place.namespace, member)
        self.budget.spared.add(uid := run["metadata"]["uid"])
        await self.place.api.delete(VMIS, self.place.namespace, member, uid=uid)
        return f"break {member}"

    async def quota(self) -> str:
        if self.chance.random() < 0.5:
            hard = {"count/virtualmachines.kubevirt.io": str(self.chance.choice([2, 4, 8]))}
            metadata = {"namespace": self.place.namespace, "name": QUOTA}
            await self.place.api.create(QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})
            return f"quota {hard}"
        await self.place.api.delete(QUOTAS, self.place.namespace, QUOTA)
        return "no quota"

    async def detach(self) -> str:
        return await self._give_away("detach", None)

    async def adopt(self) -> str:
        """It is somebody else's from now on, who even asks not to be disturbed."""
        if self.somebody is None:
            made = await self.place.api.create(CONFIG_MAPS, {"metadata": {**self._here, "name": "somebody"}})
            self.somebody = made["metadata"]["uid"]
        return await self._give_away("adopt", owned_by(CONFIG_MAPS, "somebody", self.somebody))

    async def _give_away(self, how: str, owners: list[Json] | None) -> str:
        if not (member := self._member()):
            return ""
        document = await self.place.api.get(VMS, self.place.namespace, member)
        metadata = document["metadata"]
        # One that is on its way out, or marked for it, may go: that was decided while it was the pool's.
        if metadata.get("deletionTimestamp") or meta.KEEP_DISKS in (metadata.get("finalizers") or ()):
            return ""
        change = {"resourceVersion": metadata["resourceVersion"], "ownerReferences": owners}
        await self.place.meta(member, **change)
        self.witness.free.add(metadata["uid"])
        return f"{how} {member}"

    async def attach(self) -> str:
        for name, document in (await self.place.vms()).items():
            metadata = document["metadata"]
            if metadata["uid"] in self.witness.free and (metadata.get("labels") or {}).get(meta.POOL) == "web":
                owner: dict[str, Any] = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachinePool", "name": "web"}
                owner |= {"uid": self.witness.pool_uid, "controller": True, "blockOwnerDeletion": True}
                self.witness.free.discard(metadata["uid"])
                self.witness.attached += 1
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
        document = await self.place.api.get(VMS, self.place.namespace, member)
        return await self._finalize(VMS, document, stuck=True)

    async def stick_disk(self) -> str:
        if not (disks := await self._disks()):
            return ""
        return await self._finalize(DATA_VOLUMES, self.chance.choice(disks), stuck=True)

    async def unstick(self) -> str:
        machines = list((await self.place.vms()).values())
        for resource, documents in ((VMS, machines), (DATA_VOLUMES, await self._disks())):
            for document in documents:
                if STUCK in (document["metadata"].get("finalizers") or ()):
                    return await self._finalize(resource, document, stuck=False)
        return ""

    async def _disks(self) -> list[Json]:
        return (await self.place.api.list(DATA_VOLUMES, self.place.namespace))[0]

    async def _finalize(self, resource: Resource, document: Json, *, stuck: bool) -> str:
        metadata = document["metadata"]
        if stuck and metadata.get("deletionTimestamp"):
            return ""
        others = [each for each in metadata.get("finalizers") or () if each != STUCK]
        change = {
            "resourceVersion": metadata["resourceVersion"],
            "finalizers": [*others, STUCK] if stuck else others,
        }
        await self.place.api.patch(resource, self.place.namespace, metadata["name"], {"metadata": change})
        return f"{'stick' if stuck else 'unstick'} {metadata['name']}"

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
        with suppress(NotFound):
            await self.place.api.delete(QUOTAS, self.place.namespace, QUOTA)
        for name in await insisted(self.place.vms):
            with suppress(NotFound):
                await self.place.meta(name, annotations={meta.SCALE_IN: None, **dict.fromkeys(BROKEN)})
        await self.scale(5)
        await self.place.change(paused=False, template=sized("80Mi"))


async def insisted(call: Callable[[], Awaitable[Any]]) -> Any:
    """Its answer, however often it is refused for a moment."""
    end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        try:
            return await call()
        except ApiError:
            if asyncio.get_running_loop().time() > end:
                raise
            await asyncio.sleep(0.2)


def sized(memory: str) -> Json:
    found = template()
    found["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": memory}
    return found
