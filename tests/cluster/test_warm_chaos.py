"""Claims and pools among people, faults and crashes in random order, with simulated guests on a real API server.

    POOLHOUSE_CHAOS_SEED=any POOLHOUSE_CHAOS_SECONDS=600 pytest tests/cluster/test_warm_chaos.py

A run that fails prints its seed; the same seed makes the same choices again, though not at the same moments.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from controllers.claim.snapshot import CLAIMS
from controllers.shared.resources import NODES
from controllers.warmpool.warm_pool import WARM_POOLS
from controllers.warmpool.warm_vm import POOL_KIND, Owner
from kinds import meta
from local.paths import StackPaths
from runtime.errors import ApiError
from runtime.resource import VMS
from tests.cluster.chaos import insisted, seed, watched
from tests.cluster.claiming import OVER, Counter, counter
from tests.cluster.faulty import Faulty
from tests.cluster.notary import Notary
from tests.cluster.resting import rests
from tests.cluster.test_engine import ALONE
from tests.cluster.warming import Running, controllers, template
from tests.conftest import stack

Json = dict[str, Any]

SEED = seed()
SECONDS = float(os.environ.get("POOLHOUSE_CHAOS_SECONDS") or 10)
PEACE_SECONDS = 240.0
FEWEST = 5
"""acts of people, however long they take"""
MOST = 14
"""maxTotal of the pool"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPaths]:
    paths = StackPaths(tmp_path_factory.mktemp("warm-chaos"))
    with stack(paths, "--engine", "simulated", *ALONE):
        yield paths


@pytest_asyncio.fixture
async def desk(simulated: StackPaths) -> AsyncIterator[Counter]:
    async with counter(simulated.kubeconfig) as found:
        yield found


@dataclass
class People:
    """What users do. Each act is a method; all of them may fail for being too late."""

    desk: Counter
    chance: Random
    notary: Notary
    log: list[str] = field(default_factory=list)
    made: int = 0

    async def act(self) -> None:
        often = [self.ask, self.ask, self.ask, self.ask, self.leave, self.release, self.extend]
        acts: list[Callable[[], Awaitable[str]]] = [*often, self.again, self.scale, self.change_template, self.tier]
        with suppress(ApiError):
            if said := await self.chance.choice([*acts, self.kill, self.node, self.usurp])():
                self.log.append(said)

    async def ask(self) -> str:
        self.made += 1
        spec: Json = {"poolName": "web", "bindTimeoutSeconds": self.chance.choice([3, 8])}
        spec |= self.chance.choice([{}, {}, {"onEmpty": "Queue"}, {"onEmpty": "Fail"}, {"ttlSeconds": 3}])
        if self.chance.random() < 0.2:
            spec["personalization"] = {"labels": {"team": "blue"}, "hostname": "mine"}
        if self.chance.random() < 0.1:
            spec["overrides"] = {"instancetype": "large"}
        await self.desk.claim(f"c{self.made}", **spec)
        return f"claim c{self.made} {spec}"

    async def leave(self) -> str:
        if name := await self._claim():
            await self.desk.unclaim(name)
        return f"delete {name}"

    async def again(self) -> str:
        """Deleted, and made again under its name before anybody has noticed."""
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
            await self.desk.alter(name, ttlSeconds=self.chance.choice([1, 4]))
        return f"extend {name}"

    async def scale(self) -> str:
        replicas = self.chance.choice([0, 2, 4, 6])
        await self.desk.change(replicas=replicas)
        return f"scale {replicas}"

    async def change_template(self) -> str:
        memory = self.chance.choice(["64Mi", "96Mi"])
        await self.desk.change(template=template(memory))
        return f"template {memory}"

    async def tier(self) -> str:
        mode = self.chance.choice(["Running", "Paused", "Stopped"])
        await self.desk.change(standby={"mode": mode, "hotReplicas": self.chance.choice([0, 1])})
        return f"standby {mode}"

    async def kill(self) -> str:
        """A machine, whoever has it."""
        items, _ = await self.desk.api.list(VMS, self.desk.namespace)
        if not items:
            return ""
        metadata = self.chance.choice(items)["metadata"]
        self.notary.killed.add(metadata["uid"])
        await self.desk.api.delete(VMS, self.desk.namespace, metadata["name"])
        return f"kill {metadata['name']}"

    async def usurp(self) -> str:
        """The owner of a machine that is somebody's, which whoever may edit machines can write."""
        items, _ = await self.desk.api.list(VMS, self.desk.namespace, label_selector=meta.CLAIM_UID)
        if not items:
            return ""
        pool = (await self.desk.api.get(WARM_POOLS, self.desk.namespace, "web"))["metadata"]
        owner = Owner(POOL_KIND, "web", pool["uid"]).json()
        metadata, owners = self.chance.choice(items)["metadata"], self.chance.choice([None, [owner]])
        change = {"metadata": {"uid": metadata["uid"], "ownerReferences": owners}}
        await self.desk.api.patch(VMS, self.desk.namespace, metadata["name"], change)
        return f"owners of {metadata['name']}: {owners}"

    async def node(self) -> str:
        """Lost, or cordoned, or well again."""
        name = self.chance.choice(["node-1", "node-2"])
        lost, cordoned = self.chance.choice([("true", None), (None, True), (None, None), (None, None)])
        change = {"metadata": {"annotations": {meta.NODE_LOST: lost}}, "spec": {"unschedulable": cordoned}}
        await self.desk.api.patch(NODES, None, name, change)
        return f"{name} lost={lost} cordoned={cordoned}"

    async def make_peace(self) -> None:
        for name in ("node-1", "node-2"):
            change = {"metadata": {"annotations": {meta.NODE_LOST: None}}, "spec": {"unschedulable": None}}
            await insisted(lambda name=name, change=change: self.desk.api.patch(NODES, None, name, change))
        standby = {"mode": "Paused", "hotReplicas": 1}
        patient = {"readiness": {"timeoutSeconds": 300}, "refill": {"backoffSeconds": 1, "maxBackoffSeconds": 2}}
        await insisted(lambda: self.desk.change(replicas=3, standby=standby, template=template("64Mi"), **patient))
        if not self.notary.handed:  # on the slowest machine none has waited for long enough until now
            await self.desk.claim("last", poolName="web", bindTimeoutSeconds=600)

    async def _claim(self) -> str:
        items, _ = await self.desk.api.list(CLAIMS, self.desk.namespace)
        return str(self.chance.choice(items)["metadata"]["name"]) if items else ""


async def test_whatever_happens_every_machine_has_one_claim_and_peace_returns(
    simulated: StackPaths, desk: Counter, tmp_path: Path
) -> None:
    chance, notary = Random(SEED), Notary()
    policy = {"onEmpty": "ColdStart", "bindTimeoutSeconds": 8}
    readiness = {"timeoutSeconds": 6}
    made = await desk.pool(4, maxTotal=MOST, claimPolicy=policy, readiness=readiness)
    notary.max_total[made["metadata"]["uid"]] = MOST
    people = People(desk, chance, notary)
    async with AsyncExitStack() as around:
        faulty = Faulty(simulated.kubeconfig_of("controllers"), chance)
        notary.late = faulty.late
        kubeconfig = tmp_path / "faulty.kubeconfig"
        await around.enter_async_context(faulty.serve(kubeconfig))
        try:
            await around.enter_async_context(watched(desk.api, VMS, desk.namespace, notary.machine))
            await around.enter_async_context(watched(desk.api, CLAIMS, desk.namespace, notary.claim))
            await trouble(kubeconfig, faulty, people)
            await people.make_peace()
            async with controllers(kubeconfig) as running:
                await settled(desk, running, notary)
                assert running.violations() == 0
            assert not notary.wrong
        except Exception as error:
            tail = "; ".join(people.log[-25:])
            found = "\n".join([*notary.wrong, *(await insisted(lambda: scene(desk)))])
            raise AssertionError(
                f"POOLHOUSE_CHAOS_SEED={SEED}: {error or type(error)}\nat last: {tail}\n{found}"
            ) from error
    assert len(people.log) > FEWEST, "nothing happened"
    assert notary.handed, "nobody was served"


async def trouble(kubeconfig: Path, faulty: Faulty, people: People) -> None:
    """One controller, two at once or none, each for a while, on a line with faults, while people do as they like."""
    chance, notary = people.chance, people.notary
    end = asyncio.get_running_loop().time() + SECONDS

    async def act_on() -> None:
        while asyncio.get_running_loop().time() < end or len(people.log) <= FEWEST:
            await people.act()
            await asyncio.sleep(chance.uniform(0.02, 0.4))

    acting = asyncio.create_task(act_on())
    while not acting.done():
        rate, notary.leaders, notary.excess = chance.choice([0.0, 0.02, 0.1]), chance.choice([1, 1, 2]), True
        faulty.era += 1
        async with AsyncExitStack() as both:
            for _ in range(notary.leaders):
                faulty.rate = 0.0
                await both.enter_async_context(controllers(kubeconfig))
            faulty.rate = rate
            await asyncio.sleep(chance.uniform(0.3, 4))
            if chance.random() < 0.2:
                faulty.away = True
                await asyncio.sleep(chance.uniform(0.3, 1.5))
                faulty.away = False
        notary.excess = True
    await acting
    faulty.rate, notary.leaders = 0.0, 1
    faulty.era += 1


async def settled(desk: Counter, running: Running, notary: Notary) -> None:
    """All is as it should be, and then nothing is written any more."""
    try:
        async with asyncio.timeout(PEACE_SECONDS):
            while complaint := await complaints(desk):  # noqa: ASYNC110
                await asyncio.sleep(0.3)
    except TimeoutError:
        raise AssertionError(f"no peace after {PEACE_SECONDS} s: {complaint}") from None
    await rests(running.written, 2)
    machines, _ = await desk.api.list(VMS, desk.namespace)
    pools, _ = await desk.api.list(WARM_POOLS, desk.namespace)
    claims, _ = await desk.api.list(CLAIMS, desk.namespace)
    notary.at_rest(machines, {each["metadata"]["uid"] for each in [*pools, *claims]})


async def complaints(desk: Counter) -> str:
    for name, status in (await insisted(desk.claims)).items():
        phase = status.get("phase")
        if phase != "Ready" and phase not in OVER:
            return f"claim {name} is {phase}: {status.get('conditions')}"
        if phase == "Ready" and status.get("expiresAt"):
            return f"claim {name} is still to expire"
    machines, _ = await insisted(lambda: desk.api.list(VMS, desk.namespace))
    if going := [m["metadata"]["name"] for m in machines if m["metadata"].get("deletionTimestamp")]:
        return f"{going} are being deleted"
    status = await insisted(desk.status)
    room = MOST - sum(meta.CLAIM_UID in (m["metadata"].get("labels") or {}) for m in machines)
    wanted = min(3, room)
    if status.get("availableReplicas", 0) != wanted or status.get("queuedClaims", 0):
        return f"the pool: {status}"
    return ""


async def scene(desk: Counter) -> list[str]:
    machines = [str(m) for m in await desk.machines()]
    return [*machines, *(f"{name}: {status}" for name, status in (await desk.claims()).items())]
