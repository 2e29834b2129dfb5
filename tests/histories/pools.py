"""Histories of one pool: users, faults and crashes around it, and what must hold after each write."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from controllers.pool.component import build as build_pool
from controllers.pool.gates.hooks import ABANDON
from controllers.pool.pools import POOLS
from controllers.shared.component import Component, ControllerContext
from controllers.shared.conditions import join_names
from controllers.shared.names import ordinal_of
from controllers.shared.sources import DATA_VOLUMES
from controllers.shared.vm import LifecycleHold, parse_hold
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.resource_types import POOLS as POOL_KIND
from poolhouse.api.kubevirt.meaning import VM_TEMPLATE
from poolhouse.cli.overview import object_row
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, PVCS
from tests.cluster.chaos import MOST, TOLERATED, People, Witness, sized
from tests.cluster.pooling import Place
from tests.cluster.test_pool_chaos import complaints
from tests.histories.api_server import ApiServer, Change, is_deleting
from tests.histories.history import Act, History
from tests.histories.others import lost_disk, respell_template, shared_disks, strip_owners
from tests.histories.world import HERE, World
from tests.planning import InlinePlanner

Json = dict[str, Any]

VMI_RESOURCE = "virtualmachineinstances.kubevirt.io"
PVC_RESOURCE, DATA_VOLUME_RESOURCE = "persistentvolumeclaims", "datavolumes.cdi.kubevirt.io"
CREATED_BY = "kubevirt.io/created-by"
"""KubeVirt's label of DataVolumes with the UID of their VM, which the engine copies to their claims."""
MOMENT_SECONDS = 40.0
"""A request may hang for 15 s and an event may be seconds late. A controller acts on a state that is at most this
old."""

IN_THE_WAY = re.compile(r"(?:disk|DataVolume) ([^ ,]+), which (?:a deleted VM has left|exists and is not its own)")
HOOKS: list[Json] = [
    {"name": "drain", "transition": "Terminating", "timeoutSeconds": 60},
    {"name": "log", "transition": "Terminating", "timeoutSeconds": 30, "defaultResult": "Continue"},
    {"name": "quiesce", "transition": "Restarting", "timeoutSeconds": 30, "defaultResult": "Continue"},
]

CLOCK = timedelta(seconds=2)
"""The controllers know the time of the API server from whole seconds in its answers."""

KEEPING: Mapping[str, Json] = {
    "hooks": {
        "lifecycleHooks": HOOKS,
        "scaleInStrategy": {"proactive": {"statePreservation": "Offline"}},
    },
    "proactive": {},
    "live": {},
    "opportunistic": {
        "updateStrategy": {"opportunistic": {}},
        "scaleInStrategy": {"opportunistic": {}},
    },
    "unmanaged": {"updateStrategy": {"unmanaged": {}}, "scaleInStrategy": {"unmanaged": {}}},
    "offline": {"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}},
    "steps": {
        "updateStrategy": {
            "proactive": {
                "steps": [{"setReplicas": 1}, {"pause": {"durationSeconds": 20}}, {"setReplicas": "60%"}],
                "rollback": {"failureThreshold": 2},
            }
        }
    },
}
SURGE = 2
REPLACING: Mapping[str, Json] = {
    "recreate": {"updateStrategy": {"proactive": {"replacePolicy": "Recreate"}}},
    "surge": {"updateStrategy": {"proactive": {"maxSurge": SURGE}}},
    "snapshots": {"updateStrategy": {"proactive": {"replacePolicy": "Recreate", "snapshotBeforeUpdate": True}}},
}
"""Strategies of pools whose users change disks in the template too."""
STRATEGIES: Mapping[str, Json] = {**KEEPING, **REPLACING}


def build(api: Api, events: EventRecorder, process: str) -> Component:
    return build_pool(ControllerContext(api=api, events=events, planner=InlinePlanner(Random(process))))


@dataclass
class PoolWitness(Witness):
    """Judges each write when it is stored, with the name of its author."""

    server: ApiServer = field(kw_only=True)
    hooks: bool = False
    """whether the pool has lifecycle hooks"""
    clocks_jumped: bool = False
    """Whether a clock has jumped, so that the pool may see a timeout earlier or later than the API server."""
    deleted: dict[str, float] = field(default_factory=dict)
    """When the last VM of a name was removed."""
    created: list[float] = field(default_factory=list)
    """When the controllers created VMs."""
    two_leaders_until: float = 0.0
    """Until when two leaders may have counted VMs that the other has created."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.budget.moment_seconds = MOMENT_SECONDS

    def limit(self) -> int:
        """Two leaders may replace one VM twice in an update with a surge, because each chooses a free name."""
        now = self.budget.clock()
        unseen = sum(now - at < MOMENT_SECONDS for at in self.created) if now < self.two_leaders_until else 0
        return self.most + unseen

    def saw(self, change: Change) -> None:
        document = change.document
        self.wrong.extend([*filter(None, [lost_disk(self.server, change)]), *shared_disks(self.server, change)])
        kind = "ADDED" if change.old is None else "DELETED" if change.new is None else "MODIFIED"
        if change.begins_deletion and not self._by_pool(change):
            self.budget.spared.add(document["metadata"]["uid"])
        elif change.begins_deletion and self.hooks:
            self._judge_hold(change)
        match change.plural:
            case "virtualmachines.kubevirt.io":
                self._check_ordinal(change)
                self.machine(kind, document)
            case "virtualmachineinstances.kubevirt.io":
                self.guest(kind, document)
            case "datavolumes.cdi.kubevirt.io":
                name = document["metadata"]["name"]
                if change.begins_deletion and meta.KEPT_BY in (document["metadata"].get("labels") or {}):
                    self.wrong.append(f"DataVolume {name} was kept and was deleted")
                claim = self.server.get("persistentvolumeclaims", HERE, name)
                if claim is not None and change.new is not None:
                    self.claim("MODIFIED", claim)
            case "persistentvolumeclaims":
                self._check_return(change)
                if change.begins_deletion and self._is_restored(document["metadata"]["name"]):
                    self.kept.pop(document["metadata"]["name"], None)
                    return
                self.claim(kind, document)
                if change.begins_deletion:
                    self._deleted_disk(document)
            case "virtualmachinepools.kubevirt.io":
                self._check_steps(change)

    def claim(self, kind: str, document: Json) -> None:
        """A claim is retained as soon as its DataVolume is, until the DataVolume is returned to a VM or deleted."""
        metadata = document["metadata"]
        name, owners = metadata["name"], metadata.get("ownerReferences") or ()
        volume = self.server.get(DATA_VOLUME_RESOURCE, HERE, name)
        labels = (volume["metadata"].get("labels") or {}) if volume is not None else {}
        if any(each["kind"] == "DataVolume" for each in owners) and meta.KEPT_BY not in labels:
            self.kept.pop(name, None)
        else:
            super().claim(kind, document)

    def _is_restored(self, claim: str) -> bool:
        """Whether KubeVirt replaces the claim by one with the content of a snapshot."""
        restores = self.server.objects("virtualmachinerestores.snapshot.kubevirt.io")
        vms = [each["spec"]["target"]["name"] for each in restores if at(each, "status", "complete") is False]
        return any(ordinal_of("web", vm) == ordinal_of(claim.rpartition("-")[0], claim) for vm in vms)

    def _deleted_disk(self, claim: Json) -> None:
        """A disk is deleted with its VM, and not before."""
        uid = (claim["metadata"].get("labels") or {}).get(CREATED_BY)
        for vm in self.server.objects("virtualmachines.kubevirt.io"):
            if vm["metadata"]["uid"] == uid and "deletionTimestamp" not in vm["metadata"]:
                self.wrong.append(f"disk {claim['metadata']['name']} of VM {vm['metadata']['name']} was deleted")

    def _judge_hold(self, change: Change) -> None:
        """The pool deletes a VM, or the VMI of a VM that stays, only after it has held the VM."""
        metadata = change.document["metadata"]
        name, vm = metadata["name"], self.server.get("virtualmachines.kubevirt.io", HERE, metadata["name"])
        if change.plural not in ("virtualmachines.kubevirt.io", "virtualmachineinstances.kubevirt.io") or vm is None:
            return
        if change.plural == "virtualmachineinstances.kubevirt.io" and "deletionTimestamp" in vm["metadata"]:
            return
        wanted = "Terminating" if change.plural == "virtualmachines.kubevirt.io" else "Restarting"
        hold = parse_hold(vm["metadata"])
        if hold is None or hold.transition != wanted:
            self.wrong.append(f"{name} is stopped ({wanted}) without a hold: {hold}")
        elif wanted == "Restarting" and hold.vmi_uid != metadata["uid"]:
            self.wrong.append(f"{name} is restarted with a hold of another VMI")
        elif hold.hooks and not self.clocks_jumped and not self._has_ended(hold):
            self.wrong.append(f"{name} is stopped, and its hooks have not ended: {hold.hooks}")
        elif wanted == "Restarting" and meta.IN_SERVICE in (metadata.get("labels") or {}):
            self.wrong.append(f"{name} is stopped in service")

    def _has_ended(self, hold: LifecycleHold) -> bool:
        """Whether a hook that is left lets the pool go on: by its result, or by its timeout."""
        now = format_time(self.server.now() + CLOCK)
        return any(value == ABANDON or value <= now for _, value in hold.hooks)

    def _check_ordinal(self, change: Change) -> None:
        """A new VM has an ordinal that the pool needs: others are taken by other VMs, or were a moment ago."""
        name, now = change.document["metadata"]["name"], self.budget.clock()
        if change.new is None:
            self.deleted[name] = now
        if change.old is None and change.actor.startswith("controllers"):
            self.created.append(now)
            # The server's objects, because `free` has a detached VM only once the user has got the answer.
            vms = self.server.objects(change.plural)
            others = sum(is_deleting(vm) or (controller_of(vm) or {}).get("uid") != self.pool_uid for vm in vms)
            removed = sum(now - at < MOMENT_SECONDS for at in self.deleted.values())
            # A disk that has lost its owner blocks the name of its VM.
            disks = [*self.server.objects(PVC_RESOURCE), *self.server.objects(DATA_VOLUME_RESOURCE)]
            blocked = len({each["metadata"]["name"] for each in disks if not each["metadata"].get("ownerReferences")})
            ordinal, limit = ordinal_of("web", name), self.most + others + removed + blocked
            if ordinal is None or not 1 <= ordinal <= limit:
                self.wrong.append(f"{name} was created, and at most {limit} ordinals were needed")

    def _check_return(self, change: Change) -> None:
        """A retained disk goes back to the VM of the name for which it was retained."""
        if change.old is None or change.new is None:
            return
        before, after = (each["metadata"].get("labels") or {} for each in (change.old, change.new))
        if meta.KEPT_BY in before and meta.KEPT_BY not in after:
            owners = change.new["metadata"].get("ownerReferences") or ()
            vms = {each["name"] for each in owners if each["kind"] == "VirtualMachine"}
            if vms - {before.get(meta.KEPT_FOR)}:
                name = change.new["metadata"]["name"]
                self.wrong.append(f"{name} was retained for {before.get(meta.KEPT_FOR)}, and {sorted(vms)} got it")

    def _check_steps(self, change: Change) -> None:
        """The steps of an update are done in order, and none is taken back."""
        if change.old is None or change.new is None:
            return
        before, after = ((each.get("status") or {}).get("update") or {} for each in (change.old, change.new))
        same = all(before.get(key) == after.get(key) for key in ("revision", "stepsHash"))
        done, was = after.get("stepsDone", 0), before.get("stepsDone", 0)
        if before and after and same and done < was:
            self.wrong.append(f"{done} steps of {after['revision']} are done after {was} were done")

    def _by_pool(self, change: Change) -> bool:
        """Whether the pool deletes the object, or the engine deletes a VMI because the pool requested a restart."""
        if change.actor == "engine" and change.plural == "virtualmachineinstances.kubevirt.io":
            vm = self.server.get("virtualmachines.kubevirt.io", HERE, change.document["metadata"]["name"])
            return bool(vm and (vm.get("status") or {}).get("stateChangeRequests"))
        return change.actor.startswith("controllers")


def with_sockets(sockets: int, memory: str) -> Json:
    found = sized(memory)
    found["spec"]["template"]["spec"]["domain"]["cpu"] = {"sockets": sockets, "cores": 1, "threads": 1}
    return found


def looks_like_ours(vm: Json) -> bool:
    """Whether a VM has the pool's name and label, and no controller."""
    ours = (vm["metadata"].get("labels") or {}).get(meta.POOL) == "web" and ordinal_of("web", vm["metadata"]["name"])
    return bool(ours) and not is_deleting(vm) and controller_of(vm) is None


@dataclass
class Users(People):
    strategy: str = "proactive"
    sockets: int = 1

    def acts(self) -> list[Callable[[], Awaitable[str]]]:
        owner = [self.end_hook] * 6 if self.strategy == "hooks" else []
        disks = [self.change_disk] * 6 if self.strategy in REPLACING else []
        owner += [*[self.change_size] * 12, self.choose_live_update] if self.strategy == "live" else []
        others = [self.strip, self.strip]
        if self.strategy != "live":
            # KubeVirt itself requires a restart for some other spellings, such as an empty object.
            others += [self.respell, self.respell]
        return [*super().acts(), self.change_faults, self.change_faults, *others, *owner, *disks]

    async def respell(self) -> str:
        key = self.place.namespace, "web"
        return await respell_template(self.place.api, POOLS, key, VM_TEMPLATE, self.chance)

    async def strip(self) -> str:
        """A VM without its owner is a detached one."""
        resource = self.chance.choice([None, DATA_VOLUMES, PVCS, CONTROLLER_REVISIONS])
        if resource is None:
            return await self._give_away("strip", None)
        return await strip_owners(self.place.api, resource, self.place.namespace, self.chance)

    async def make_room(self, pool: Json) -> str:
        """Deletes the disk that is in the way of the template, as the message asks: a deleted VM has left it."""
        conditions = {each["type"]: each for each in at(pool, "status", "conditions") or ()}
        disk = IN_THE_WAY.search(at(conditions, "Progressing", "message") or "")
        if disk is None:
            return ""
        for resource in (DATA_VOLUMES, PVCS):
            with suppress(NotFound):
                await self.place.api.delete(resource, self.place.namespace, disk[1])
        return f"delete {disk[1]}"

    async def end_hook(self) -> str:
        """The owner of a hook ends it."""
        held = [vm for vm in (await self.place.vms()).values() if parse_hold(vm["metadata"])]
        if not held:
            return ""
        vm = self.chance.choice(held)["metadata"]
        hooks = [key for key in vm["annotations"] if key.startswith(meta.HOOK_PREFIX)]
        if not hooks:
            return ""
        hook, value = self.chance.choice(hooks), self.chance.choice([None, None, "Abandon"])
        await self.place.meta(vm["name"], annotations={hook: value})
        return f"{hook} of {vm['name']} ends with {value}"

    async def scale(self, wanted: int | None = None) -> str:
        if self.strategy == "surge":
            self.witness.may_have(MOST + SURGE)
        return await super().scale(wanted)

    async def change_disk(self) -> str:
        template, size = sized("64Mi"), self.chance.choice(["1Gi", "2Gi", "3Gi"])
        template["spec"]["dataVolumeTemplates"][0]["spec"]["pvc"]["resources"]["requests"]["storage"] = size
        await self.place.change(template=template)
        return f"disks of {size}"

    async def change_template(self) -> str:
        return await (self.change_size() if self.strategy == "live" else super().change_template())

    async def change_size(self) -> str:
        """A template whose change KubeVirt applies to running VMs if it only adds to them, as it does most often."""
        self.sockets = self.chance.choice([self.sockets + 1, self.sockets + 1, self.sockets, 1])
        guest, key = self.chance.choice(["1Gi", "1Gi", "2Gi"]), self.chance.choice("ab")
        template = with_sockets(self.sockets, guest)
        template["spec"]["template"]["spec"]["tolerations"] = [{"key": key, "operator": "Exists"}]
        await self.place.change(template=template)
        return f"{self.sockets} sockets, {guest}, toleration {key}"

    async def choose_live_update(self) -> str:
        chosen = self.chance.choice(["Prefer", "Require", "Never"])
        await self.place.change(updateStrategy={"proactive": {"liveUpdate": chosen}})
        return f"liveUpdate {chosen}"

    async def change_faults(self) -> str:
        """A template whose guests fail to start, or crash while they run."""
        faults = self.chance.choice(
            [{"fail-rate": "0.4", "fail-times": "2"}, {"crash-seconds": "30"}, {"start-seconds": "20"}]
        )
        template = sized(self.chance.choice(["1Gi", "2Gi"] if self.strategy == "live" else ["64Mi", "96Mi"]))
        annotations = {meta.SIM_PREFIX + key: value for key, value in faults.items()}
        template["metadata"] = {"annotations": annotations}
        await self.place.change(template=template)
        return f"template with {faults}"

    async def preserve(self) -> str:
        return await super().preserve() if self.strategy == "proactive" else ""


class PatchingPlace(Place):
    async def change(self, name: str = "web", **spec: Any) -> Json:
        """A template says how VMs run in one way, and the stored one may say it in the other."""
        if "template" in spec:
            template = spec["template"]
            spec["template"] = {**template, "spec": {"runStrategy": None, **template["spec"]}}
        return await super().change(name, **spec)


class PoolHistory(History):
    build = staticmethod(build)

    def __init__(self, world: World, strategy: str, tolerated: int = TOLERATED) -> None:
        """`tolerated` is the disruption budget that the checks apply."""
        super().__init__(world)
        self.strategy, self.tolerated = strategy, tolerated
        self.place = PatchingPlace(world.api("users"), HERE)

    async def begin(self) -> None:
        spec = STRATEGIES.get(self.strategy, {})
        made = await self.place.pool(
            5,
            template=with_sockets(1, "1Gi") if self.strategy == "live" else sized("64Mi"),
            maxUnavailable=TOLERATED,
            autohealing={"startupFailureThreshold": 2},
            **spec,
        )
        self.witness = PoolWitness(self.place, made["metadata"]["uid"], self.tolerated, server=self.world.server)
        self.witness.hooks = self.strategy == "hooks"
        self.users = self.make_users()
        await self.users.scale(5)

    def make_users(self) -> Users:
        return Users(self.place, self.world.random, self.witness, strategy=self.strategy)

    def leaders_changed(self, count: int) -> None:
        super().leaders_changed(count)
        if count > 1:
            self.witness.two_leaders_until = float("inf")
        elif self.witness.budget.leaders > 1:
            self.witness.two_leaders_until = self.witness.budget.clock() + MOMENT_SECONDS
        self.witness.budget.leaders = count

    def saw(self, change: Change) -> list[str]:
        known = len(self.witness.wrong)
        self.witness.clocks_jumped |= bool(self.world.jumped)
        self.witness.saw(change)
        return self.witness.wrong[known:]

    async def act(self) -> str:
        return await self.users.act()

    async def respell(self) -> str:
        return await self.users.respell()

    def script(self) -> list[Act]:
        users = self.users
        return [
            lambda: users.scale(3),
            users.change_template,
            lambda: users.scale(1),
            lambda: users.scale(3),
            users.break_one,
            users.detach,
            users.attach,
        ]

    async def make_peace(self) -> None:
        await self.users.make_peace()
        strategy = REPLACING.get(self.strategy, {}).get("updateStrategy")
        template = {**sized("80Mi"), "metadata": None}
        await self.place.change(template=template, updateStrategy=strategy, scaleInStrategy=None)

    async def why_not_at_rest(self) -> str:
        pool = await self.place.seen()
        if found := complaints(pool):
            self.world.note(await self.users.make_room(pool))
            return found
        conditions = {each["type"]: each for each in pool["status"].get("conditions") or ()}
        if found := self._untold(pool, conditions.get("UnownedVMs", {"status": "False"})):
            return found
        if self.strategy in REPLACING and conditions.get("DisksOutdated", {}).get("status") == "True":
            return str(conditions["DisksOutdated"]["message"])
        return self._not_as_the_template(pool) if self.strategy == "live" else ""

    def _not_as_the_template(self, pool: Json) -> str:
        """A pool that is complete says so of its guests, and not of their VMs only."""
        wanted = at(pool, "spec", "template", "spec", "template", "spec", "domain")
        vms = {vm["metadata"]["uid"]: vm for vm in self.world.server.objects("virtualmachines.kubevirt.io")}
        for vmi in self.world.server.objects(VMI_RESOURCE):
            vm = vms.get((controller_of(vmi) or {}).get("uid"))
            if vm is None or (controller_of(vm) or {}).get("uid") != pool["metadata"]["uid"]:
                continue
            for path in (("cpu", "sockets"), ("memory", "guest")):
                found, asked = (at(domain, *path) for domain in (at(vmi, "spec", "domain"), wanted))
                if asked is not None and to_int(found) != to_int(asked):
                    return f"{vmi['metadata']['name']} has {'.'.join(path)} {found}, and the template {asked}"
            if shown := [each["type"] for each in at(vmi, "status", "conditions") or () if "Hot" in each["type"]]:
                return f"{vmi['metadata']['name']} still has {shown}"
        return ""

    def _uids(self) -> dict[str, str]:
        """The UIDs of the VMs that nobody deletes, by name."""
        vms = self.world.server.objects("virtualmachines.kubevirt.io")
        return {vm["metadata"]["name"]: vm["metadata"]["uid"] for vm in vms if not is_deleting(vm)}

    def _untold(self, pool: Json, condition: Json) -> str:
        """The condition and `poolhouse overview` name the VMs that look like the pool's and have no owner."""
        vms = self.world.server.objects("virtualmachines.kubevirt.io")
        unowned = join_names(sorted(name for vm in vms if (name := vm["metadata"]["name"]) and looks_like_ours(vm)))
        told = condition["message"].partition(":")[0] if condition["status"] == "True" else ""
        if told != unowned:
            return f"VMs without an owner: {unowned!r}, and UnownedVMs names {told!r}"
        shown = object_row(POOL_KIND, pool, self.world.now())["message"]
        return f"overview shows {shown!r} and not {unowned}" if unowned not in shown else ""

    async def check_at_rest(self) -> None:
        """A VM that loses its owner at rest, as in a restore from a backup, stays with its disks. The pool
        creates another VM, names the first one in its condition UnownedVMs if that has the pool's label, and can take
        it back."""
        await super().check_at_rest()
        before = self._uids()
        if not (said := await self.users.detach()):
            return
        self.world.note(f"at rest: {said}")
        await self._converged()
        detached = said.removeprefix("detach ")
        assert self._uids().get(detached) == before[detached], f"{detached} has no owner and is gone"
        self.world.note(f"at rest: {await self.users.attach()}")
        await asyncio.sleep(MOMENT_SECONDS)
        await self._converged()
