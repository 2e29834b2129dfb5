"""Migrations whose source node refuses operations, or completes them too late."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from poolhouse.stack.engine.qemu.migration_job import MAX_ABORTS, MigrationTimeout, await_migration


class Lost(Exception):
    """The migration failed; the guest runs where it was."""


class Guest:
    """Refuses post-copy some times, and ends after some aborts: migrated or not."""

    def __init__(self, refusals: int = 0, aborts: int = 1, moved: bool = False) -> None:
        self.switched = 0
        self._refusals = refusals
        self._aborts = aborts
        self._moved = moved
        self._over = asyncio.get_running_loop().create_future()
        self.move: asyncio.Task[None] = asyncio.create_task(self._move())
        self.began = asyncio.Event()

    async def _move(self) -> None:
        self.began.set()
        await asyncio.shield(self._over)

    def ends(self, moved: bool) -> None:
        if self._over.done():
            return
        if moved:
            self._over.set_result(None)
        else:
            self._over.set_exception(Lost())

    async def disrupt(self) -> bool:
        if self._refusals == 0:
            self.ends(True)
            return True
        self._refusals -= 1
        return False

    async def abort(self) -> None:
        self._aborts -= 1
        if self._aborts == 0:
            self.ends(self._moved)

    async def progress(self) -> Mapping[str, int]:
        return {"memory_remaining": 1}

    async def told(self) -> None:
        self.switched += 1


@pytest.mark.parametrize("refusals", [0, 3, 40])
async def test_the_disruption_is_retried(refusals: int) -> None:
    guest = Guest(refusals)
    await await_migration(guest.move, guest, 0, guest.told, 0)
    assert guest.switched == 1


async def test_a_migration_may_end_while_post_copy_is_refused() -> None:
    guest = Guest(refusals=1 << 20)
    seen = asyncio.create_task(await_migration(guest.move, guest, 0, guest.told, 0))
    await guest.began.wait()
    guest.ends(moved=True)
    await seen
    assert guest.switched == 0


@pytest.mark.parametrize("aborts", [1, 3, MAX_ABORTS])
async def test_a_slow_migration_is_aborted(aborts: int) -> None:
    guest = Guest(aborts=aborts)
    with pytest.raises(MigrationTimeout) as slow:
        await await_migration(guest.move, guest, 0, None, 0)
    assert slow.value.progress == {"memory_remaining": 1}


async def test_a_migration_may_complete_during_its_abort() -> None:
    guest = Guest(aborts=2, moved=True)
    await await_migration(guest.move, guest, 0, None, 0)


@pytest.mark.parametrize("switched", [True, False])
async def test_the_error_of_a_failed_migration_is_raised(switched: bool) -> None:
    guest = Guest()
    guest.ends(moved=False)
    with pytest.raises(Lost):
        await await_migration(guest.move, guest, None, guest.told if switched else None, 0)


async def test_a_cancelled_migration_is_aborted() -> None:
    guest = Guest(aborts=2)
    seen = asyncio.create_task(await_migration(guest.move, guest, None, None, 0))
    await guest.began.wait()
    seen.cancel()
    await asyncio.wait({seen})
    assert seen.cancelled()
    assert guest.move.done()


@pytest.mark.parametrize("aborts", [1, MAX_ABORTS + 1], ids=["it moves at that moment", "it cannot be given up"])
async def test_a_cancelled_migration_may_complete(aborts: int) -> None:
    guest = Guest(aborts=aborts, moved=True)
    seen = asyncio.create_task(await_migration(guest.move, guest, None, None, 0))
    await guest.began.wait()
    seen.cancel()
    for _ in range(10 * MAX_ABORTS):
        await asyncio.sleep(0)
    guest.ends(moved=True)
    await seen
    assert not seen.cancelled()


async def test_an_error_of_the_callback_aborts_the_migration() -> None:
    guest = Guest(aborts=1)

    async def disrupt() -> bool:
        return True

    async def told() -> None:
        raise RuntimeError

    guest.disrupt = disrupt
    with pytest.raises(RuntimeError):
        await await_migration(guest.move, guest, 0, told, 0)
    assert guest.move.done()
