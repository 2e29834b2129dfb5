"""Workers under more load than they can bear, and workers that cannot be started: in virtual time, without libvirt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from defaulter.root_directories import RootDirectories
from defaulter.worker_pool import QueueFull, RequestFailed, WorkerLimits, WorkerPool
from defaulter.worker_protocol import Operation, Response
from tests.virtual_loop import VirtualLoop

Answering = Callable[[int, bytes], Awaitable[Response]]

DONE: Response = (200, b"{}")
ILL: Response = (503, json.dumps({"problems": [{"path": "spec.architecture", "message": "no such"}]}).encode())


class Scripted:
    """A worker that answers as it is told, and starts at once."""

    def __init__(self, answering: Answering, probe: Response = DONE) -> None:
        self._answering, self._probe = answering, probe
        self._begun = False

    async def configure(self, root: Path, settings: dict[str, Any]) -> None:
        pass

    async def ask(self, tag: int, body: bytes = b"") -> Response:
        if not self._begun:
            self._begun = True
            return self._probe
        return await self._answering(tag, body)

    async def wait(self) -> None:
        await asyncio.Event().wait()

    def resident_bytes(self) -> int:
        return 0

    async def kill(self) -> None:
        pass


async def at_once(tag: int, body: bytes) -> Response:
    return DONE


def after(seconds: float) -> Answering:
    async def answering(tag: int, body: bytes) -> Response:
        await asyncio.sleep(seconds)
        return DONE

    return answering


async def never(tag: int, body: bytes) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


def kept(
    scene: Callable[[WorkerPool], Awaitable[None]],
    *workers: Scripted | OSError,
    limits: WorkerLimits = WorkerLimits(workers=1),  # noqa: B008
    roots: RootDirectories | None = None,
) -> None:
    """Plays a scene with workers that are these, one after another, for ever the last."""
    following = iter(workers)
    last: list[Scripted | OSError] = []

    async def start(_root: Path, _environment: dict[str, str]) -> Any:
        last[:] = [next(following, *last)]
        if isinstance(last[0], OSError):
            raise last[0]
        return last[0]

    async def play() -> None:
        pool = WorkerPool(limits, roots or RootDirectories(None, None, None), {}, {}, start)
        running = asyncio.create_task(pool.run())
        try:
            await scene(pool)
            assert not running.done()
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play())


async def until(true: Callable[[], Any]) -> None:
    """However long that takes: what a thread does takes no virtual time, or any."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def ready(workers: WorkerPool) -> None:
    await until(lambda: workers.counts.ready)


@pytest.mark.parametrize("seconds", [0.01, 0.3, 1.2])
def test_a_load_beyond_what_it_can_bear_costs_no_worker_its_life_and_few_their_answer(seconds: float) -> None:
    """For the time of a hundred answers, 16 requests come where 10 can be answered."""
    answers: list[Any] = []

    async def overload(workers: WorkerPool) -> None:
        await ready(workers)
        asked = []
        for _ in range(160):
            asked.append(asyncio.create_task(workers.ask(Operation.DOCUMENT)))
            await asyncio.sleep(seconds / 1.6)
        answers.extend(await asyncio.gather(*asked, return_exceptions=True))
        assert workers.counts.restarts == {}

    kept(overload, Scripted(after(seconds)))
    assert {type(answer) for answer in answers} <= {tuple, RequestFailed}
    assert answers.count(DONE) >= 70


def test_a_worker_is_late_by_the_time_that_it_had_itself() -> None:
    async def hang(workers: WorkerPool) -> None:
        await ready(workers)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(RequestFailed, match="no answer within 2 s"):
            await workers.ask(Operation.DOCUMENT)
        assert loop.time() - began == pytest.approx(2)
        await until(lambda: workers.counts.restarts)
        await ready(workers)
        assert await workers.ask(Operation.DOCUMENT) == DONE
        assert workers.counts.restarts == {"late": 1}

    kept(hang, Scripted(never), Scripted(at_once))


def test_readiness_waits_for_a_worker_but_for_nobody_else() -> None:
    async def full(workers: WorkerPool) -> None:
        await ready(workers)
        others = [asyncio.create_task(workers.ask(Operation.DOCUMENT))]
        await asyncio.sleep(0.001)
        others += [asyncio.create_task(workers.ask(Operation.DOCUMENT)) for _ in range(50)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await workers.ask(Operation.DOCUMENT)
        assert await workers.ask(Operation.PROBE, urgent=True) == DONE
        assert sum(other.done() for other in others) <= 2
        assert await asyncio.gather(*others) == [DONE] * 51

    kept(full, Scripted(after(0.01)), limits=WorkerLimits(workers=1, queue_length=50))


class Full(RootDirectories):
    """On a disk without room for the first directory, nor ever for what is known of QEMU."""

    def __init__(self) -> None:
        super().__init__(None, None, None)
        self._made = 0

    def make(self, slot: int) -> Path:
        self._made += 1
        if self._made == 1:
            raise OSError("no space left on device")
        return super().make(slot)

    def learn(self, slot: int) -> None:
        raise OSError("no space left on device")


def begins(trouble: str) -> Callable[[WorkerPool], Awaitable[None]]:
    """The scene of a first worker that does not start, for this reason, and a second that does."""

    async def scene(workers: WorkerPool) -> None:
        await until(lambda: workers.counts.restarts)
        assert workers.counts.start_error == trouble
        await ready(workers)
        assert workers.counts.start_error == ""
        assert await workers.ask(Operation.DOCUMENT) == DONE
        assert workers.counts.restarts == {"did not start": 1}

    return scene


@pytest.mark.parametrize(
    ("first", "trouble"),
    [
        pytest.param(
            OSError("cannot allocate memory"), "cannot allocate memory", id="no process can be made for the time being"
        ),
        pytest.param(Scripted(at_once, probe=ILL), "spec.architecture: no such", id="libvirt cannot define the probe"),
    ],
)
def test_one_that_does_not_start_is_tried_again_and_says_why(first: Scripted | OSError, trouble: str) -> None:
    kept(begins(trouble), first, Scripted(at_once))


def test_a_full_disk_ends_nothing() -> None:
    kept(begins("no space left on device"), Scripted(at_once), roots=Full())
