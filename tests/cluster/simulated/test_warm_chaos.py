"""Random acts of users, faults and crashes, with claims and pools of simulated guests on a real API server.

    POOLHOUSE_CHAOS_SEED=any POOLHOUSE_CHAOS_SECONDS=600 pytest tests/cluster/simulated/test_warm_chaos.py

A run that fails prints its seed. The same seed makes the same choices again, at other moments.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controllers.claim.snapshot import CLAIMS
from controllers.warmpool.warm_pool import WARM_POOLS
from controllers.warmpool.warm_vm import POOL_KIND, Owner
from poolhouse.api.kinds import meta
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import NODES, VMS
from poolhouse.stack.paths import StackPaths
from tests.cluster.chaos import insisted, seed, watched
from tests.cluster.claiming import OVER, Counter
from tests.cluster.faulty import Faulty
from tests.cluster.pooling import instancetype
from tests.cluster.resting import rests
from tests.cluster.warm_invariants import InvariantChecker
from tests.cluster.warm_pools import RunningControllers, controllers, template

Json = dict[str, Any]

SEED = seed()
SECONDS = float(os.environ.get("POOLHOUSE_CHAOS_SECONDS") or 10)
REST_SECONDS = 240.0
MIN_ACTS = 5
"""Acts of users that a run needs."""
MAX_TOTAL = 14
"""maxTotal of the pool."""


@dataclass
class Users:
    """Each method is an act of a user. It may fail because the object has changed."""

    desk: Counter
    random: Random
    checker: InvariantChecker
    log: list[str] = field(default_factory=list)
    made: int = 0

    async def act(self) -> str:
        """Returns what was done, or nothing."""
        often = [
            self.create_claim,
            self.create_claim,
            self.create_claim,
            self.create_claim,
            self.delete_claim,
            self.release,
            self.extend,
        ]
        acts: list[Callable[[], Awaitable[str]]] = [
            *often,
            self.recreate_claim,
            self.scale,
            self.change_template,
            self.change_standby,
        ]
        said = await self.random.choice([*acts, self.delete_vm, self.change_node, self.change_owner])()
        if said:
            self.log.append(said)
        return said

    async def create_claim(self) -> str:
        self.made += 1
        spec: Json = {"poolName": "web", "bindTimeoutSeconds": self.random.choice([3, 8])}
        spec |= self.random.choice([{}, {}, {"onEmpty": "Queue"}, {"onEmpty": "Fail"}, {"ttlSeconds": 3}])
        if self.random.random() < 0.2:
            spec["personalization"] = {"labels": {"team": "blue"}}
        if self.random.random() < 0.1:
            spec["overrides"] = {"instancetype": "large"}
            spec["personalization"] = {"hostname": "mine"}
        await self.desk.claim(f"c{self.made}", **spec)
        return f"claim c{self.made} {spec}"

    async def delete_claim(self) -> str:
        if name := await self._claim():
            await self.desk.unclaim(name)
        return f"delete {name}"

    async def recreate_claim(self) -> str:
        """Deletes a claim and creates one of the same name at once."""
        if name := await self._claim():
            await self.desk.unclaim(name)
            await self.desk.claim(name, poolName="web", bindTimeoutSeconds=5)
        return f"again {name}"

    async def release(self) -> str:
        if name := await self._claim():
            await self.desk.alter(name, release=True)
        return f"release {name}"

    async def extend(self) -> str:
        if name := await self._claim():
            await self.desk.alter(name, ttlSeconds=self.random.choice([1, 4]))
        return f"extend {name}"

    async def scale(self) -> str:
        replicas = self.random.choice([0, 2, 4, 6])
        await self.desk.change(replicas=replicas)
        return f"scale {replicas}"

    async def change_template(self) -> str:
        memory = self.random.choice(["64Mi", "96Mi"])
        await self.desk.change(template=template(memory))
        return f"template {memory}"

    async def change_standby(self) -> str:
        mode = self.random.choice(["Running", "Paused", "Stopped"])
        await self.desk.change(standby={"mode": mode, "hotReplicas": self.random.choice([0, 1])})
        return f"standby {mode}"

    async def delete_vm(self) -> str:
        """Deletes any VM."""
        items, _ = await self.desk.api.list(VMS, self.desk.namespace)
        if not items:
            return ""
        metadata = self.random.choice(items)["metadata"]
        self.checker.killed.add(metadata["uid"])
        await self.desk.api.delete(VMS, self.desk.namespace, metadata["name"])
        return f"kill {metadata['name']}"

    async def change_owner(self) -> str:
        """Changes the owner of a claimed VM, as every user who may edit VMs can."""
        items, _ = await self.desk.api.list(VMS, self.desk.namespace, label_selector=meta.CLAIM_UID)
        if not items:
            return ""
        pool = (await self.desk.api.get(WARM_POOLS, self.desk.namespace, "web"))["metadata"]
        owner = Owner(POOL_KIND, "web", pool["uid"]).json()
        metadata, owners = self.random.choice(items)["metadata"], self.random.choice([None, [owner]])
        change = {"metadata": {"uid": metadata["uid"], "ownerReferences": owners}}
        await self.desk.api.patch(VMS, self.desk.namespace, metadata["name"], change)
        return f"owners of {metadata['name']}: {owners}"

    async def change_node(self) -> str:
        """Loses, cordons or restores a node."""
        name = self.random.choice(["node-1", "node-2"])
        lost, cordoned = self.random.choice([("true", None), (None, True), (None, None), (None, None)])
        change = {"metadata": {"annotations": {meta.NODE_LOST: lost}}, "spec": {"unschedulable": cordoned}}
        await self.desk.api.patch(NODES, None, name, change)
        return f"{name} lost={lost} cordoned={cordoned}"

    async def restore(self) -> None:
        for name in ("node-1", "node-2"):
            change = {"metadata": {"annotations": {meta.NODE_LOST: None}}, "spec": {"unschedulable": None}}
            await insisted(partial(self.desk.api.patch, NODES, None, name, change))
        standby = {"mode": "Paused", "hotReplicas": 1}
        refill = {"backoffSeconds": 1, "maxBackoffSeconds": 2}
        patient: dict[str, Any] = {"readiness": {"timeoutSeconds": 300}, "refill": refill}
        await insisted(lambda: self.desk.change(replicas=3, standby=standby, template=template("64Mi"), **patient))
        if not self.checker.handed:  # on a slow machine every claim may have timed out
            await self.desk.claim("last", poolName="web", bindTimeoutSeconds=600)

    async def _claim(self) -> str:
        items, _ = await self.desk.api.list(CLAIMS, self.desk.namespace)
        return str(self.random.choice(items)["metadata"]["name"]) if items else ""


@pytest.mark.sentence("5.32")
async def test_invariants_hold_and_the_pool_comes_to_rest(simulated: StackPaths, desk: Counter, tmp_path: Path) -> None:
    await instancetype(desk.api, "large", 2, "64Mi")
    random, checker = Random(SEED), InvariantChecker()
    policy = {"onEmpty": "ColdStart", "bindTimeoutSeconds": 8}
    readiness = {"timeoutSeconds": 6}
    made = await desk.pool(4, maxTotal=MAX_TOTAL, claimPolicy=policy, readiness=readiness)
    checker.max_total[made["metadata"]["uid"]] = MAX_TOTAL
    users = Users(desk, random, checker)
    async with AsyncExitStack() as around:
        faulty = Faulty(simulated.kubeconfig_of("controllers"), random)
        checker.late = faulty.late
        kubeconfig = tmp_path / "faulty.kubeconfig"
        await around.enter_async_context(faulty.serve(kubeconfig))
        try:
            await around.enter_async_context(watched(desk.api, VMS, desk.namespace, checker.vm_event))
            await around.enter_async_context(watched(desk.api, CLAIMS, desk.namespace, checker.claim_event))
            await disturb(kubeconfig, faulty, users)
            await users.restore()
            async with controllers(kubeconfig) as running:
                await wait_for_rest(desk, running, checker)
                assert running.violations() == 0
            assert not checker.violations
        except Exception as error:
            tail = "; ".join(users.log[-25:])
            found = "\n".join([*checker.violations, *(await insisted(lambda: describe(desk)))])
            raise AssertionError(
                f"POOLHOUSE_CHAOS_SEED={SEED}: {error or type(error)}\nlast acts: {tail}\n{found}"
            ) from error
    assert len(users.log) > MIN_ACTS, "too few acts"
    assert checker.handed, "no claim got a VM"


async def disturb(kubeconfig: Path, faulty: Faulty, users: Users) -> None:
    """Runs one or two controllers at a time through a faulty proxy while users act."""
    random, checker = users.random, users.checker
    end = asyncio.get_running_loop().time() + SECONDS

    async def act_on() -> None:
        while asyncio.get_running_loop().time() < end or len(users.log) <= MIN_ACTS:
            with suppress(ApiError):
                await users.act()
            await asyncio.sleep(random.uniform(0.02, 0.4))

    acting = asyncio.create_task(act_on())
    while not acting.done():
        rate, checker.leaders, checker.excess = random.choice([0.0, 0.02, 0.1]), random.choice([1, 1, 2]), True
        faulty.era += 1
        async with AsyncExitStack() as both:
            for _ in range(checker.leaders):
                faulty.rate = 0.0
                await both.enter_async_context(controllers(kubeconfig))
            faulty.rate = rate
            await asyncio.sleep(random.uniform(0.3, 4))
            if random.random() < 0.2:
                faulty.away = True
                await asyncio.sleep(random.uniform(0.3, 1.5))
                faulty.away = False
        checker.excess = True
    await acting
    faulty.rate, checker.leaders = 0.0, 1
    faulty.era += 1


async def wait_for_rest(desk: Counter, running: RunningControllers, checker: InvariantChecker) -> None:
    """Waits until the pool and all claims are as specified, and no controller writes."""
    try:
        async with asyncio.timeout(REST_SECONDS):
            while reason := await why_not_at_rest(desk):  # noqa: ASYNC110
                await asyncio.sleep(0.3)
    except TimeoutError:
        raise AssertionError(f"not at rest after {REST_SECONDS} s: {reason}") from None
    await rests(running.written, 2)
    vms, _ = await desk.api.list(VMS, desk.namespace)
    pools, _ = await desk.api.list(WARM_POOLS, desk.namespace)
    claims, _ = await desk.api.list(CLAIMS, desk.namespace)
    checker.at_rest(vms, {each["metadata"]["uid"] for each in [*pools, *claims]})


async def why_not_at_rest(desk: Counter) -> str:
    for name, status in (await insisted(desk.claims)).items():
        phase = status.get("phase")
        if phase != "Ready" and phase not in OVER:
            return f"claim {name} is {phase}: {status.get('conditions')}"
        if phase == "Ready" and status.get("expiresAt"):
            return f"claim {name} is still to expire"
    vms, _ = await insisted(lambda: desk.api.list(VMS, desk.namespace))
    if deleting := [vm["metadata"]["name"] for vm in vms if vm["metadata"].get("deletionTimestamp")]:
        return f"{deleting} are being deleted"
    status = await insisted(desk.status)
    available = MAX_TOTAL - sum(meta.CLAIM_UID in (vm["metadata"].get("labels") or {}) for vm in vms)
    wanted = min(3, available)
    if status.get("availableReplicas", 0) != wanted or status.get("queuedClaims", 0):
        return f"the pool: {status}"
    return ""


async def describe(desk: Counter) -> list[str]:
    vms = [str(vm) for vm in await desk.vms()]
    return [*vms, *(f"{name}: {status}" for name, status in (await desk.claims()).items())]
