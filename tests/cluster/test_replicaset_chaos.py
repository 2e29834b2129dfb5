"""A replica set among people, faults and crashes in random order, on a real API server.

    POOLHOUSE_CHAOS_SEED=any POOLHOUSE_CHAOS_SECONDS=600 pytest tests/cluster/test_replicaset_chaos.py

A run that fails prints its seed; the same seed makes the same choices again, though not at the same moments.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest_asyncio

from controllers.replicaset.observe import parse_replica
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import VMIS
from tests.cluster.chaos import seed, watched
from tests.cluster.faulty import Faulty
from tests.cluster.pooling import Running, until
from tests.cluster.replicating import LABELS, Place, controller, namespace
from tests.cluster.resting import rests

Json = dict[str, Any]

SEED = seed()
SECONDS = float(os.environ.get("POOLHOUSE_CHAOS_SECONDS") or 8)
MOST = 8
"""replicas that people ask for"""
FEWEST = 5
"""acts of people, however long they take"""


@pytest_asyncio.fixture
async def place(control_plane: Any) -> AsyncIterator[Place]:
    async with namespace(control_plane.kubeconfig) as found:
        yield found


@dataclass
class People:
    """They scale, relabel, delete and bring instances, and play KubeVirt."""

    place: Place
    chance: Random
    wanted: int = 3
    extra: int = 0
    """instances that others than the set made its own, or gave back to it"""
    deleted: set[str] = field(default_factory=set)
    """UIDs of what people deleted themselves"""
    log: list[str] = field(default_factory=list)

    async def act(self) -> None:
        acts = (self.scale, self.run, self.run, self.end, self.lose, self.relabel, self.delete, self.bring)
        act = self.chance.choice(acts)
        self.log.append(act.__name__)
        with suppress(ApiError, KeyError):  # it has gone or changed meanwhile
            await act()

    async def scale(self) -> None:
        self.wanted = self.chance.randint(0, MOST)
        await self.place.change(replicas=self.wanted)

    async def run(self) -> None:
        await self.place.runs(*await self.place.names())

    async def end(self) -> None:
        await self.place.ends(await self.one(), ran=self.chance.choice([1, 600]))

    async def lose(self) -> None:
        await self.place.runs(await self.one(), phase="Unknown", conditions=[])
        self.extra += 1

    async def relabel(self) -> None:
        name = await self.one()
        mine = self.chance.random() < 0.5
        self.extra += mine
        await self.place.relabel(name, app="web" if mine else "debug")

    async def delete(self) -> None:
        name = await self.one()
        self.deleted.add((await self.place.instances())[name]["metadata"]["uid"])
        await self.place.api.delete(VMIS, self.place.namespace, name)

    async def bring(self) -> None:
        self.extra += 1
        await self.place.vmi(f"brought-{len(self.log)}", labels=self.chance.choice([LABELS, {"app": "db"}]))

    async def one(self) -> str:
        return self.chance.choice(sorted(await self.place.names()) or ["none"])


@dataclass
class Witness:
    """Sees everything that happens, on a line without faults."""

    people: People
    wrong: list[str] = field(default_factory=list)
    alive: dict[str, Json] = field(default_factory=dict)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        place = self.people.place
        async with watched(place.api, VMIS, place.namespace, self.see):
            yield

    def see(self, kind: str, document: Json) -> None:
        seen = parse_replica(document)
        before = self.alive.pop(seen.uid, None)
        if kind != "DELETED":
            self.alive[seen.uid] = document
        elif before is not None and seen.uid not in self.people.deleted:
            if parse_replica(before).labels.get("app") != "web":
                self.wrong.append(f"{seen.name} was deleted, and its labels were not the set's")
            if not parse_replica(before).owner_uid:
                self.wrong.append(f"{seen.name} was deleted, and was nobody's")
        members = [i for i in map(parse_replica, self.alive.values()) if i.owner_name and not i.final and not i.unknown]
        if len(members) > MOST + self.people.extra:
            self.wrong.append(f"{len(members)} instances, though never more than {MOST} were asked for")


async def test_whatever_happens_nothing_is_lost_and_peace_returns(
    control_plane: Any, place: Place, tmp_path: Path
) -> None:
    chance = Random(SEED)
    await place.make(3)
    async with AsyncExitStack() as stack:
        faulty = Faulty(control_plane.kubeconfig, chance)
        kubeconfig = tmp_path / "faulty.kubeconfig"
        await stack.enter_async_context(faulty.serve(kubeconfig))
        people = People(place, chance)
        witness = Witness(people)
        try:
            async with witness.watching():
                await trouble(kubeconfig, faulty, people, chance)
                faulty.rate = 0.0
                async with controller(kubeconfig) as running:
                    await settled(place, people, running)
            assert not witness.wrong, "\n".join(witness.wrong)
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"POOLHOUSE_CHAOS_SEED={SEED}: {error}\n{people.log[-25:]}") from error
    print(f"seed {SEED}: {len(people.log)} acts of people, {dict(faulty.done)}")
    assert len(people.log) > FEWEST, "nothing happened"


async def trouble(kubeconfig: Path, faulty: Faulty, people: People, chance: Random) -> None:
    """One controller, two at once or none, each for a while, on a line with faults, while people do as they like."""
    end = asyncio.get_running_loop().time() + SECONDS

    async def act_on() -> None:
        while asyncio.get_running_loop().time() < end or len(people.log) <= FEWEST:
            await people.act()
            await asyncio.sleep(chance.uniform(0.02, 0.4))

    acting = asyncio.create_task(act_on())
    while not acting.done():
        faulty.rate = chance.choice([0.0, 0.1, 0.3])
        async with AsyncExitStack() as stack:
            for _ in range(chance.choice([0, 1, 1, 1, 2])):
                await stack.enter_async_context(controller(kubeconfig))
            await asyncio.sleep(chance.uniform(0.3, 3))
    await acting


async def settled(place: Place, people: People, running: Running) -> None:
    """As many as are wanted, ready, and nothing more to do."""
    await place.change(replicas=people.wanted)

    async def numbers() -> tuple[int, int]:
        with suppress(NotFound):  # one too many, which is gone
            await people.run()  # what had ended or was lost, and is still there, runs as well
        return await place.numbers()

    # The first look may see a status of an earlier process, and a set that rests while it waits for a back-off.
    for _ in range(2):
        await until(numbers, (people.wanted, people.wanted), 400)  # what ended again and again waits for 300 s at most
        await rests(running.writes, 1.5)
