"""A pool among people, faults and crashes in random order, with simulated guests on a real API server.

    POOLHOUSE_CHAOS_SEED=any POOLHOUSE_CHAOS_SECONDS=600 pytest tests/cluster/test_pool_chaos.py

A run that fails prints its seed; the same seed makes the same choices again, though not at the same moments.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from controllers.pool.list_stores import list_stores
from controllers.pool.observe import observe
from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.sources import DATA_VOLUMES
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import NAMESPACES, PVCS
from tests.cluster.chaos import TOLERATED, People, Witness, insisted, seed, sized
from tests.cluster.faulty import Faulty
from tests.cluster.pooling import Place, Running, controller, engine
from tests.cluster.resting import rests

Json = dict[str, Any]

SEED = seed()
SECONDS = float(os.environ.get("POOLHOUSE_CHAOS_SECONDS") or 15)
AWAY_SECONDS = max(2.0, SECONDS / 10)
"""how long nothing is answered, at most: in a run of ten minutes, one"""
PEACE_SECONDS = 400.0
"""for that the pauses between tries to start grow to 300 s"""
FEWEST = 5
"""acts of people, however long they take"""


async def test_whatever_happens_nothing_is_doubled_or_lost_and_peace_returns(
    control_plane: Any, place: Place, tmp_path: Path
) -> None:
    chance = Random(SEED)
    healing = {"startupFailureThreshold": 2}
    made = await place.pool(5, template=sized("64Mi"), maxUnavailable=TOLERATED, autohealing=healing)
    async with AsyncExitStack() as stack:
        faulty = Faulty(control_plane.kubeconfig, chance)
        kubeconfig = tmp_path / "faulty.kubeconfig"
        await stack.enter_async_context(faulty.serve(kubeconfig))
        await stack.enter_async_context(engine(control_plane.kubeconfig, tmp_path))
        witness = Witness(place, made["metadata"]["uid"], TOLERATED)
        people = People(place, chance, witness)
        await people.scale(5)
        try:
            async with witness.watching():
                await trouble(kubeconfig, faulty, people, chance)
                await people.make_peace()
                async with controller(kubeconfig) as running:
                    await settled(place, running)
                assert not witness.wrong, "\n".join(witness.wrong)
            async with controller(kubeconfig):
                await over(place)
        except Exception as error:
            tail, scene = "; ".join(people.log[-25:]), await insisted(lambda: described(place))
            raise AssertionError(
                f"POOLHOUSE_CHAOS_SEED={SEED}: {error or type(error)}\nat last: {tail}\n{scene}"
            ) from error
    assert len(people.log) > FEWEST, "nothing happened"
    print(f"seed {SEED}: {len(people.log)} acts of people, {dict(faulty.done)}, {witness.budget.taken} VMs taken by us")


async def trouble(kubeconfig: Path, faulty: Faulty, people: People, chance: Random) -> None:
    """One controller, two at once or none, each for a while, on a line with faults, while people do as they like."""
    end = asyncio.get_running_loop().time() + SECONDS

    async def act_on() -> None:
        while asyncio.get_running_loop().time() < end or len(people.log) <= FEWEST:
            with suppress(ApiError):
                await people.act()
            await asyncio.sleep(chance.uniform(0.05, 0.8))

    acting = asyncio.create_task(act_on())
    while not acting.done():
        faulty.rate = chance.choice([0.0, 0.02, 0.1])
        async with AsyncExitStack() as stack:
            for _ in range(chance.choice([1, 1, 1, 2])):
                faulty.rate, rate = 0.0, faulty.rate
                await stack.enter_async_context(controller(kubeconfig, burst=chance.choice([2, 250])))
                faulty.rate = rate
            await asyncio.sleep(chance.uniform(0.3, 5))
            if chance.random() < 0.2:
                faulty.away = True
                await asyncio.sleep(chance.uniform(0.5, AWAY_SECONDS))
                faulty.away = False
    await acting
    faulty.rate = 0.0


async def settled(place: Place, running: Running) -> None:
    """All is as it should be, and then nothing is written any more."""
    try:
        async with asyncio.timeout(PEACE_SECONDS):
            while complaint := complaints(await insisted(place.seen)):  # noqa: ASYNC110
                await asyncio.sleep(0.3)
    except TimeoutError:
        raise AssertionError(f"no peace after {PEACE_SECONDS} s: {complaint}") from None
    await rests(running.writes, 3)


async def over(place: Place) -> None:
    """The namespace goes, with everything in it: nothing of ours holds it, and nothing is made anew."""
    await place.api.delete(NAMESPACES, None, place.namespace)
    try:
        async with asyncio.timeout(PEACE_SECONDS):
            with suppress(NotFound):
                while True:
                    left = await place.api.get(NAMESPACES, None, place.namespace)
                    await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"the namespace is still there: {left['status']}") from None


async def described(place: Place) -> str:
    """Every VM, its run and disks, and what the pool's plan says about it."""
    stores = await list_stores(place.api, place.namespace)
    state = observe(stores, (place.namespace, "web"), synced=True, failure=None, burst=250)
    decided = plan(state, datetime.now(UTC)) if isinstance(state, PoolSnapshot) else state
    disks = [
        f"{resource.kind} {(vm := each['metadata'])['name']} of {[o['uid'] for o in vm.get('ownerReferences') or ()]} "
        f"{vm.get('labels')} {vm.get('deletionTimestamp', '')} {each.get('status', {}).get('phase')}"
        for resource in (DATA_VOLUMES, PVCS)
        for each in (await place.api.list(resource, place.namespace))[0]
    ]
    return "\n".join([*map(str, stores.vms.all()), *map(str, stores.vmis.all()), *disks, str(decided)])


def complaints(pool: Json) -> str:
    wanted, status = pool["spec"]["replicas"], pool.get("status") or {}
    if status.get("observedGeneration") != pool["metadata"]["generation"]:
        return "the last change was not looked at"
    for count in ("replicas", "updatedReplicas", "readyReplicas"):
        if status.get(count) != wanted:
            return f"{count} is {status.get(count)}, not {wanted}; {status.get('conditions')}"
    return f"{status['terminatingReplicas']} are terminating" if status.get("terminatingReplicas") else ""
