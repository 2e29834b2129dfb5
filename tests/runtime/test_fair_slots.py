"""Slots that are shared fairly. No test sleeps: a caller holds its slot until the test ends it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from poolhouse.runtime.fair_slots import FairSlots


@dataclass
class Callers:
    """Callers of slots, named by their key and a number, such as `a1`."""

    slots: FairSlots[str]
    working: list[str] = field(default_factory=list)
    began: list[str] = field(default_factory=list)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _ends: dict[str, asyncio.Event] = field(default_factory=dict)

    async def come(self, *names: str) -> None:
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._work(name))
        await turns()

    async def _work(self, name: str) -> None:
        async with self.slots.slot(name[0]):
            self.began.append(name)
            self.working.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.working.remove(name)

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
        await turns()

    def cancel(self, *names: str) -> None:
        for name in names:
            self._tasks[name].cancel()

    async def end_all(self) -> list[str]:
        """Ends each working caller, the oldest first, until nobody works. Returns all in the order of their turns."""
        while self.working:
            await self.end(self.working[0])
        return self.began


async def turns() -> None:
    """Lets all tasks run until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_key_holds_at_most_its_cap_even_if_slots_are_free() -> None:
    callers = Callers(FairSlots(4, per_key=2))
    await callers.come("a1", "a2", "a3", "a4")
    assert callers.working == ["a1", "a2"]
    assert (callers.slots.held("a"), callers.slots.waiting("a")) == (2, 2)
    await callers.come("b1")
    assert callers.working == ["a1", "a2", "b1"], "the free slots are those of other keys"
    await callers.end("a1")
    assert callers.working == ["a2", "b1", "a3"]


async def test_a_free_slot_goes_to_the_key_that_holds_the_fewest() -> None:
    callers = Callers(FairSlots(4, per_key=2))
    await callers.come("a1", "a2", "b1", "b2", "a3", "a4", "b3", "c1")
    await callers.end("a1")
    assert callers.working == ["a2", "b1", "b2", "c1"], "c holds none, although it came last"


async def test_keys_that_hold_as_many_take_turns() -> None:
    callers = Callers(FairSlots(1, per_key=1))
    await callers.come("a1", "a2", "a3", "b1", "b2", "c1")
    assert await callers.end_all() == ["a1", "a2", "b1", "c1", "a3", "b2"], "a has one more, since it came first"


async def test_the_wait_depends_on_the_number_of_keys_and_not_on_that_of_callers() -> None:
    callers = Callers(FairSlots(2, per_key=1))
    await callers.come(*(f"a{number}" for number in range(500)), "b1")
    assert callers.working == ["a0", "b1"]
    await callers.come("c1")
    await callers.end("a0")
    assert callers.working == ["b1", "a1"], "it was the turn of a, which then holds no slot"
    await callers.end("a1")
    assert callers.working == ["b1", "c1"]


async def test_a_caller_that_is_cancelled_while_it_waits_takes_no_slot() -> None:
    callers = Callers(FairSlots(1, per_key=1))
    await callers.come("a1", "b1", "c1")
    callers.cancel("b1")
    await turns()
    assert callers.slots.waiting("b") == 0
    await callers.end("a1")
    assert callers.working == ["c1"]


async def test_a_slot_that_was_given_to_a_caller_that_is_cancelled_goes_to_the_next() -> None:
    callers = Callers(FairSlots(1, per_key=1))
    await callers.come("a1", "b1", "c1")
    callers._ends["a1"].set()
    await asyncio.sleep(0)
    assert (callers.slots.held("b"), callers.began) == (1, ["a1"]), "b1 has the slot and has not run yet"
    callers.cancel("b1")
    await turns()
    assert callers.began == ["a1", "c1"]


async def test_a_caller_that_was_cancelled_just_now_does_not_cost_its_key_the_turn() -> None:
    callers = Callers(FairSlots(1, per_key=1))
    await callers.come("a1", "b1", "b2", "c1")
    callers._ends["a1"].set()
    callers.cancel("b1")
    await turns()
    assert callers.working == ["b2"]


async def test_an_exception_releases_the_slot() -> None:
    slots: FairSlots[str] = FairSlots(1, per_key=1)
    with pytest.raises(LookupError):
        async with slots.slot("a"):
            raise LookupError
    assert slots.held("a") == 0
    async with slots.slot("b"):
        pass


@pytest.mark.parametrize(("total", "per_key"), [(0, 0), (4, 0), (4, 5)])
def test_a_cap_that_gives_no_slot_or_limits_nothing_is_refused(total: int, per_key: int) -> None:
    with pytest.raises(ValueError, match="per_key"):
        FairSlots(total, per_key=per_key)


@pytest.mark.parametrize("seed", range(20))
async def test_no_history_loses_a_slot_or_exceeds_a_limit(seed: int) -> None:
    chance = random.Random(seed)
    callers = Callers(FairSlots(3, per_key=2))
    names = [f"{chance.choice('abcd')}{number}" for number in range(60)]
    for name in names:
        await callers.come(name)
        if chance.random() < 0.4:
            callers.cancel(chance.choice(list(callers._tasks)))
        if callers.working and chance.random() < 0.6:
            await callers.end(chance.choice(callers.working))
        held = Counter(each[0] for each in callers.working)
        assert held.total() <= 3
        assert max(held.values(), default=0) <= 2
    await callers.end_all()
    assert not any(callers.slots.held(key) or callers.slots.waiting(key) for key in "abcd")
    assert all(each.done() for each in callers._tasks.values()), "nobody waits for a free slot"


async def test_a_slot_that_is_given_back_goes_to_another_caller_and_is_waited_for_again() -> None:
    slots: FairSlots[str] = FairSlots(1, per_key=1)
    callers = Callers(slots)
    async with slots.slot("a") as slot:
        await callers.come("b1")
        assert not callers.working
        async with slot.given_back():
            await turns()
            assert callers.working == ["b1"]
            await callers.end("b1")
        assert slots.held("a") == 1
    assert slots.held("a") == 0


async def test_after_an_exception_a_slot_that_was_given_back_stays_with_others() -> None:
    slots: FairSlots[str] = FairSlots(1, per_key=1)
    callers = Callers(slots)

    async def fail() -> None:
        async with slots.slot("a") as slot, slot.given_back():
            await callers.come("b1")
            raise ValueError("meanwhile")

    with pytest.raises(ValueError, match="meanwhile"):
        await fail()
    await callers.come("b2")
    assert callers.working == ["b1"]
    await callers.end_all()
