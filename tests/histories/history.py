"""Runs one history: disturbances, then peace, and the checks at rest."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from poolhouse.api.kinds import meta
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import NODES
from tests.histories.api_server import Change
from tests.histories.client import Failpoint, Network
from tests.histories.others import touched
from tests.histories.world import Build, Process, World, engine

Json = dict[str, Any]

REST_SECONDS = 7200.0
"""Virtual time until everything is as specified. The pauses of failed starts grow to 300 s."""
QUIET_SECONDS = 120.0
"""At rest no controller writes for this time."""
JUMP = timedelta(hours=1)
RESPELLINGS = 3
"""Other spellings of the template that are written at rest."""
RESPELT_SECONDS = 45.0
"""Within this time the controllers have judged a template."""
SCRIPT_CHECKS = 12
"""Seconds between two acts of a script, in which a crashed process is replaced."""

Act = Callable[[], Awaitable[str]]


class History(ABC):
    """The objects, users and invariants of one kind."""

    build: Build

    def __init__(self, world: World) -> None:
        self.world = world
        self.leaders = 0

    @abstractmethod
    async def begin(self) -> None:
        """Creates the objects."""

    @abstractmethod
    def saw(self, change: Change) -> list[str]:
        """What a stored write in the namespace violates."""

    def leaders_changed(self, count: int) -> None:
        """Called before processes start."""
        self.leaders = count

    @abstractmethod
    async def act(self) -> str:
        """Does something that a user could do, and returns what was done."""

    @abstractmethod
    async def respell(self) -> str:
        """Writes a spec in another spelling of the same meaning, and returns what was done."""

    @abstractmethod
    async def make_peace(self) -> None:
        """Takes back everything that prevents the objects from coming to rest."""

    @abstractmethod
    async def why_not_at_rest(self) -> str:
        """What is not as specified, or nothing."""

    async def check_at_rest(self) -> None:
        """Checks what must hold at rest."""
        assert not await self.why_not_at_rest()

    async def run(self, acts: int) -> None:
        async with engine(self.world):
            await self.begin()
            self.world.server.observers.append(self._check)
            try:
                await self._disturb(acts)
                await self._rest()
            except AssertionError as error:
                self.world.violated(str(error))

    def _check(self, change: Change) -> None:
        for each in self.saw(change):
            self.world.violated(each)

    async def _disturb(self, acts: int) -> None:
        """One process of controllers, two that both believe they lead, or none, each for a while."""
        random = self.world.random
        acting = asyncio.create_task(self._act(acts))
        try:
            while not acting.done():
                network = Network(random, stalls=random.choice([0.0, 0.1, 0.3]))
                self.world.networks.append(network)
                rate = random.choice([0.0, 0.02, 0.1])
                count = random.choice([1, 1, 1, 2])
                self.leaders_changed(count)
                processes = [
                    Process.start(
                        self.world, self.build, network, self._failpoint(), random.choice([0, 0, 3600, -3600])
                    )
                    for _ in range(count)
                ]
                self.world.note(f"{len(processes)} processes, {rate=}")
                network.rate = rate
                await asyncio.wait(
                    [acting, *(each.task for each in processes)],
                    timeout=random.uniform(5, 300),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if random.random() < 0.1:
                    network.away = True
                    await asyncio.sleep(random.uniform(1, 60))
                for each in processes:
                    await each.kill()
                await asyncio.sleep(random.choice([0.1, 1.0, 15.0]))
            await acting
        finally:
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)

    def _failpoint(self) -> Failpoint | None:
        random = self.world.random
        return Failpoint(random.randint(1, 20), random.random() < 0.5) if random.random() < 0.7 else None

    def script(self) -> list[Act]:
        """Acts that let the controllers take every kind of write."""
        raise NotImplementedError

    async def run_script(self, failpoint: Failpoint | None) -> int:
        """Runs the script without other faults. The process crashes at the failpoint, and another one starts. Returns
        the number of writes of the first process."""
        async with engine(self.world):
            await self.begin()
            self.world.server.observers.append(self._check)
            self.leaders_changed(1)
            first = process = Process.start(self.world, self.build, Network(self.world.random), failpoint)
            for act in self.script():
                self.world.note(await act())
                for _ in range(SCRIPT_CHECKS):
                    await asyncio.sleep(1)
                    if process.transport.crashed:
                        self.leaders_changed(1)
                        process = Process.start(self.world, self.build, Network(self.world.random))
            await process.kill()
            try:
                await self._rest()
            except AssertionError as error:
                self.world.violated(str(error))
            return first.writes

    async def _act(self, acts: int) -> None:
        random = self.world.random
        for _ in range(acts):
            await asyncio.sleep(random.choice([0.05, 1.0, 10.0, 45.0]) * random.uniform(0.5, 1.5))
            chance = random.random()
            if chance < 0.08:
                await self._change_node()
            elif chance < 0.12:
                self._jump(random.choice([JUMP, -JUMP]))
            else:
                with suppress(ApiError):
                    self.world.note(await self.act())

    def _jump(self, by: timedelta) -> None:
        self.world.jump(by)
        self.world.note(f"the clocks of the cluster jump by {by}")

    async def _change_node(self) -> None:
        random = self.world.random
        name = random.choice(["node-1", "node-2"])
        lost, cordoned = random.choice([("true", None), (None, True), (None, None), (None, None)])
        await self._set_node(name, lost, cordoned)
        self.world.note(f"{name}: {lost=} {cordoned=}")

    async def _set_node(self, name: str, lost: str | None, cordoned: bool | None) -> None:
        change = {"metadata": {"annotations": {meta.NODE_LOST: lost}}, "spec": {"unschedulable": cordoned}}
        await self.world.api("users").patch(NODES, None, name, change)

    async def _rest(self) -> None:
        self.world.note("peace")
        for name in ("node-1", "node-2"):
            await self._set_node(name, None, None)
        await self.make_peace()
        self.leaders_changed(1)
        process = Process.start(self.world, self.build, Network(self.world.random))
        try:
            await self._converged()
            await self._quiet(process)
            await self.check_at_rest()
            await self._respell_at_rest()
        finally:
            await process.kill()

    async def _respell_at_rest(self) -> None:
        """Other spellings of the template restart nothing, make no disk and write no VM."""
        found: list[str] = []
        self.world.server.observers.append(lambda change: found.append(touched(self.world.server, change)))
        for _ in range(RESPELLINGS):
            self.world.note(await self.respell())
            await asyncio.sleep(RESPELT_SECONDS)
            if wrong := [each for each in found if each]:
                raise AssertionError("; ".join(wrong))
        await self._converged()

    @property
    def _rest_seconds(self) -> float:
        return REST_SECONDS + self.world.behind_seconds

    async def _converged(self) -> None:
        end = asyncio.get_running_loop().time() + self._rest_seconds
        while why := await self.why_not_at_rest():
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"not at rest after {self._rest_seconds:.0f} s: {why}")
            await asyncio.sleep(5)

    async def _quiet(self, process: Process) -> None:
        """Waits until the process has written nothing for a time. Failed VMs may cause a few writes more."""
        loop = asyncio.get_running_loop()
        end, before, since = loop.time() + self._rest_seconds, process.writes, loop.time()
        while loop.time() - since < QUIET_SECONDS:
            await asyncio.sleep(10)
            if process.writes != before:
                assert loop.time() < end, f"the controllers write at rest: {process.writes} writes"
                before, since = process.writes, loop.time()
