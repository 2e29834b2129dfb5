"""Histories of a pool whose nodes are drained, as `kubectl drain` does it, while users and faults change the pool."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from controllers.shared.evictions import parse_budget
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.meta import NAMESPACE, SIMULATION
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import CONFIG_MAPS, NODES, PODS
from poolhouse.stack.engine.admission import evictions
from tests.cluster.chaos import TOLERATED, sized
from tests.histories.api_server import Change, is_deleting
from tests.histories.pools import MOMENT_SECONDS, VMI_RESOURCE, PoolHistory, Users
from tests.histories.world import World

Json = dict[str, Any]

NODE_NAMES = ("node-1", "node-2")
RETRY_SECONDS = 5.0
"""Pause after which `kubectl drain` asks again for evictions that were refused."""
DRAIN_SECONDS = 1800.0
"""A node of a healthy pool is drained within this time if no clock was set back."""


@dataclass
class Drains:
    """Evicts launcher Pods by the rules of the eviction API."""

    world: World
    tasks: list[asyncio.Task[bool]] = field(default_factory=list)

    async def begin(self) -> None:
        metadata = {"namespace": NAMESPACE, "name": SIMULATION}
        await self.world.api("users").create(CONFIG_MAPS, {"metadata": metadata, "data": {"launcher-pods": "true"}})

    def pods(self, node: str) -> list[Json]:
        pods = self.world.server.objects("pods")
        return [pod for pod in pods if pod["spec"]["nodeName"] == node and not is_deleting(pod)]

    async def cordon(self, node: str, cordoned: bool | None) -> None:
        await self.world.api("users").patch(NODES, None, node, {"spec": {"unschedulable": cordoned}})

    async def drain(self, node: str, seconds: float = DRAIN_SECONDS) -> bool:
        """Whether the node has no launcher Pods in the end."""
        end = asyncio.get_running_loop().time() + seconds
        await self.cordon(node, True)
        while self.pods(node) and asyncio.get_running_loop().time() < end:
            for pod in self.pods(node):
                with suppress(ApiError):
                    await self._evict(pod)
            await asyncio.sleep(RETRY_SECONDS)
        return not self.pods(node)

    def start(self, node: str, seconds: float) -> None:
        self.tasks.append(asyncio.create_task(self.drain(node, seconds)))

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()

    async def _evict(self, pod: Json) -> None:
        metadata, server = pod["metadata"], self.world.server
        settings = ClusterSettings.of(server.objects("kubevirts.kubevirt.io")[0])
        request = {"namespace": metadata["namespace"], "name": metadata["name"], "object": {}}
        if not (await evictions.review(self.world.api("engine"), request, settings))["allowed"]:
            return
        found = map(parse_budget, server.objects("poddisruptionbudgets.policy"))
        budgets = [each for each in found if each.selects(metadata["labels"])]
        if len(budgets) > 1:
            self.world.violated(f"{metadata['name']} has two budgets, and no drain may evict it: {budgets}")
        elif not budgets or not is_ready(pod) or self._healthy(budgets[0].selects) > (budgets[0].min_available or 0):
            await self.world.api("users").delete(PODS, metadata["namespace"], metadata["name"], uid=metadata["uid"])

    def _healthy(self, selects: Callable[[Json], bool]) -> int:
        pods = self.world.server.objects("pods")
        return sum(is_ready(pod) and not is_deleting(pod) and selects(pod["metadata"]["labels"]) for pod in pods)


def is_ready(found: Json) -> bool:
    """Whether a Pod or a VMI has the condition Ready."""
    conditions = at(found, "status", "conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_moving(vmi: Json) -> bool:
    """Whether a running guest migrates, or KubeVirt is about to migrate it because of an eviction.

    A VMI that is marked before its guest runs serves nobody, and KubeVirt does not move it yet. After a failed
    migration KubeVirt tries again for ever, so that a VM that waited for the end would never be updated."""
    status = vmi.get("status") or {}
    migration = status.get("migrationState") or {}
    marked = status.get("evacuationNodeName") not in (None, "") and status["evacuationNodeName"] == status["nodeName"]
    leaves = marked and not migration.get("failed")
    return status.get("phase") == "Running" and (leaves or bool(migration and not migration.get("completed")))


@dataclass
class DrainUsers(Users):
    drains: Drains = field(kw_only=True)

    def acts(self) -> list[Callable[[], Awaitable[str]]]:
        return [*super().acts(), *[self.drain] * 8, *[self.uncordon] * 4, *[self.change_template] * 3]

    async def change_template(self) -> str:
        template, strategy = sized(self.chance.choice(["64Mi", "96Mi"])), self.chance.choice(["None", "LiveMigrate"])
        template["spec"]["template"]["spec"]["evictionStrategy"] = strategy
        await self.place.change(template=template)
        return f"template with evictionStrategy {strategy}"

    async def drain(self) -> str:
        node = self.chance.choice(NODE_NAMES)
        self.drains.start(node, self.chance.choice([10.0, 120.0, 600.0]))
        return f"drain {node}"

    async def uncordon(self) -> str:
        node = self.chance.choice(NODE_NAMES)
        await self.drains.cordon(node, None)
        return f"uncordon {node}"


class DrainHistory(PoolHistory):
    def __init__(self, world: World) -> None:
        super().__init__(world, "drain")
        self.drains = Drains(world)
        self.moving: dict[str, float] = {}
        """since when VMIs move, by UID"""

    def make_users(self) -> Users:
        return DrainUsers(self.place, self.world.random, self.witness, strategy=self.strategy, drains=self.drains)

    async def begin(self) -> None:
        await self.drains.begin()
        await super().begin()
        await self.users.change_template()

    def saw(self, change: Change) -> list[str]:
        return [*super().saw(change), *self._second_disruption(change)]

    def _second_disruption(self, change: Change) -> list[str]:
        """A VMI that leaves its node is not restarted."""
        if change.plural != VMI_RESOURCE:
            return []
        uid, now = change.document["metadata"]["uid"], asyncio.get_running_loop().time()
        since = self.moving.get(uid)
        if change.new is not None and is_moving(change.new):
            self.moving.setdefault(uid, now)
        else:
            self.moving.pop(uid, None)
        restarted = change.begins_deletion and change.actor.startswith("controllers")
        if restarted and since is not None and now - since > MOMENT_SECONDS:
            return [
                f"{change.document['metadata']['name']} is restarted, and leaves its node since {now - since:.0f} s"
            ]
        return []

    async def make_peace(self) -> None:
        await self.drains.stop()
        for node in NODE_NAMES:
            await self.drains.cordon(node, None)
        # The budget of the pool follows the readiness of the VMs that have left it, so these crash no more.
        for name, vm in (await self.place.vms()).items():
            if (controller_of(vm) or {}).get("uid") != self.witness.pool_uid and not is_deleting(vm):
                await self.place.meta(name, annotations={f"{meta.SIM_PREFIX}crash-seconds": "999999"})
        await super().make_peace()

    async def check_at_rest(self) -> None:
        """Each node can be drained, and the pool has as many available VMs as it must have meanwhile."""
        await super().check_at_rest()
        floor = (await self.place.seen())["spec"]["replicas"] - TOLERATED
        least = [len(self.witness.budget.available())]
        self.world.server.observers.append(lambda _: least.append(len(self.witness.budget.available())))
        for node in NODE_NAMES:
            self.world.note(f"at rest: drain {node}")
            drained = await self.drains.drain(node, DRAIN_SECONDS + self.world.behind_seconds)
            assert drained, f"{[pod['metadata']['name'] for pod in self.drains.pods(node)]} stay"
            await self._converged()
            assert min(least) >= floor, f"{min(least)} VMs were available, {floor} must be"
            await self.drains.cordon(node, None)
