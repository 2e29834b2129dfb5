"""Overloaded workers and workers that do not start, in virtual time and without libvirt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from defaulter.root_directories import RootDirectories
from defaulter.worker_pool import DocumentFailed, QueueFull, RequestFailed, WorkerLimits, WorkerPool
from defaulter.worker_protocol import Operation, Response
from tests.virtual_loop import VirtualLoop

Answering = Callable[[int, bytes], Awaitable[Response]]

DONE: Response = (200, b"{}")
ILL: Response = (503, json.dumps({"problems": [{"path": "spec.architecture", "message": "no such"}]}).encode())


class Scripted:
    """A worker with a scripted response."""

    def __init__(self, answering: Answering, probe: Response = DONE) -> None:
        self._answering, self._probe = answering, probe
        self._begun = False

    async def configure(self, root: Path, settings: dict[str, Any]) -> None:
        pass

    def cpu_seconds(self) -> float:
        """All the time since the start of the loop."""
        return asyncio.get_running_loop().time()

    async def ask(self, tag: int, body: bytes = b"") -> Response:
        if not self._begun:
            self._begun = True
            return self._probe
        return await self._answering(tag, body)

    async def wait(self) -> None:
        await asyncio.Event().wait()

    def lower_priority(self) -> None:
        pass

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
    limits: WorkerLimits = WorkerLimits(workers=1, spares=0),  # noqa: B008
    roots: RootDirectories | None = None,
) -> None:
    """Runs a scene with these workers, one after another; the last one is started again and again."""
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
    """Polls: the work of a thread takes no virtual time."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def ready(workers: WorkerPool) -> None:
    await until(lambda: workers.counts.ready)


@pytest.mark.parametrize("seconds", [0.01, 0.3, 1.2])
def test_overload_replaces_no_worker_and_fails_few_requests(seconds: float) -> None:
    """16 requests arrive in the time of 10 responses."""
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
    assert {type(answer) for answer in answers} <= {tuple, QueueFull}
    assert answers.count(DONE) >= 70


def test_only_the_time_of_the_worker_itself_makes_it_late() -> None:
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


def test_a_document_that_takes_the_whole_deadline_fails_alone() -> None:
    async def costly(workers: WorkerPool) -> None:
        await ready(workers)
        with pytest.raises(DocumentFailed):
            await workers.ask(Operation.DOCUMENT)

    kept(costly, Scripted(never))


def named(name: str, **cpu: Any) -> bytes:
    spec = {"domain": {"cpu": cpu, "devices": {"disks": [{"name": name, "disk": {"bus": "virtio"}}]}}}
    return json.dumps({"kind": "VirtualMachineInstance", "metadata": {"name": name}, "spec": spec}).encode()


def test_a_document_that_cost_a_worker_is_answered_at_once() -> None:
    async def again(workers: WorkerPool) -> None:
        await ready(workers)
        with pytest.raises(DocumentFailed):
            await workers.ask(Operation.DOCUMENT, named("a", maxSockets=4000))
        await until(lambda: workers.counts.restarts)
        began = asyncio.get_running_loop().time()
        with pytest.raises(DocumentFailed) as refused:
            await workers.ask(Operation.DOCUMENT, named("b", maxSockets=4000))
        assert asyncio.get_running_loop().time() == began
        assert refused.value.path == "spec.domain.cpu.maxSockets"
        await ready(workers)
        assert await workers.ask(Operation.DOCUMENT, named("c", maxSockets=2)) == DONE, "another shape"
        assert workers.counts.restarts == {"late": 1}

    kept(again, Scripted(never), Scripted(at_once))


def test_a_request_that_waited_too_long_fails_because_of_the_queue() -> None:
    async def busy(workers: WorkerPool) -> None:
        await ready(workers)
        first = asyncio.create_task(workers.ask(Operation.DOCUMENT))
        await asyncio.sleep(0.3)
        with pytest.raises(QueueFull):
            await workers.ask(Operation.DOCUMENT)
        assert await first == DONE

    kept(busy, Scripted(after(1.5)))


def test_without_a_worker_the_service_fails() -> None:
    async def away(workers: WorkerPool) -> None:
        await until(lambda: workers.counts.restarts)
        with pytest.raises(RequestFailed) as failed:
            await workers.ask(Operation.DOCUMENT)
        assert type(failed.value) is RequestFailed

    kept(away, OSError("cannot allocate memory"))


def test_a_probe_waits_for_a_worker_but_not_for_other_requests() -> None:
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

    kept(full, Scripted(after(0.01)), limits=WorkerLimits(workers=1, spares=0, queue_length=50))


class Full(RootDirectories):
    """A disk without space for the first directory, and never any for the capabilities."""

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
    """The first worker does not start, for this reason; the second does."""

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
        pytest.param(OSError("cannot allocate memory"), "cannot allocate memory", id="no process can be started"),
        pytest.param(Scripted(at_once, probe=ILL), "spec.architecture: no such", id="libvirt cannot define the probe"),
    ],
)
def test_a_worker_that_does_not_start_is_started_again_with_a_reason(first: Scripted | OSError, trouble: str) -> None:
    kept(begins(trouble), first, Scripted(at_once))


def test_a_full_disk_does_not_end_the_pool() -> None:
    kept(begins("no space left on device"), Scripted(at_once), roots=Full())


def document(objects: int, number: int = 0) -> bytes:
    return json.dumps({"number": number, "disks": [{}] * objects}).encode()


def by_size(tag: int, body: bytes) -> Awaitable[Response]:
    """10 ms, and 0.1 ms for each object, as libvirt takes."""
    return after(0.01 + body.count(b"{") / 10_000)(tag, body)


@pytest.mark.parametrize("objects", [pytest.param(100, id="small VMs"), pytest.param(1000, id="large VMs")])
def test_a_tenant_that_floods_delays_no_other_tenant(objects: int) -> None:
    """16 clients of one namespace ask for large VMs without a pause, and another one for a small VM now and then."""
    delays: list[float] = []

    async def flooded(workers: WorkerPool) -> None:
        await until(lambda: workers.counts.ready == 2)
        loop = asyncio.get_running_loop()

        async def flood() -> None:
            while True:
                with suppress(RequestFailed):
                    await workers.ask(Operation.DOCUMENT, document(objects), tenant="busy")

        floods = [asyncio.create_task(flood()) for _ in range(16)]
        for number in range(100):
            await asyncio.sleep(0.037)
            began = loop.time()
            assert await workers.ask(Operation.DOCUMENT, document(1, number), tenant="quiet") == DONE
            delays.append(loop.time() - began)
        for each in floods:
            each.cancel()

    kept(flooded, Scripted(by_size), limits=WorkerLimits(workers=2, spares=0))
    assert max(delays) < 3 * 0.0102


def test_the_worker_of_normal_priority_gets_small_documents_first() -> None:
    handled: list[str] = []

    class Named(Scripted):
        def __init__(self) -> None:
            super().__init__(after(0.01))
            self.name = "normal"

        def lower_priority(self) -> None:
            self.name = "low"

        async def ask(self, tag: int, body: bytes = b"") -> Response:
            if tag == Operation.DOCUMENT:
                handled.append(self.name)
            return await super().ask(tag, body)

    async def small(workers: WorkerPool) -> None:
        await until(lambda: workers.counts.ready == 2)
        for number in range(5):
            await workers.ask(Operation.DOCUMENT, document(1, number))
        assert handled == ["normal"] * 5
        await asyncio.gather(*(workers.ask(Operation.DOCUMENT, document(1, number)) for number in range(2)))
        assert sorted(handled[5:]) == ["low", "normal"]

    kept(small, Named(), Named(), limits=WorkerLimits(workers=2, spares=0))


def test_a_tenant_may_have_a_part_of_the_requests_that_wait() -> None:
    async def flooded(workers: WorkerPool) -> None:
        await ready(workers)
        floods = [asyncio.create_task(workers.ask(Operation.DOCUMENT, tenant="busy")) for _ in range(20)]
        await asyncio.sleep(0)
        assert await workers.ask(Operation.DOCUMENT, tenant="quiet") == DONE
        answers = await asyncio.gather(*floods, return_exceptions=True)
        assert [type(answer) for answer in answers].count(QueueFull) == 10

    kept(flooded, Scripted(after(0.01)), limits=WorkerLimits(workers=1, spares=0, tenant_queue_length=10))


def test_a_spare_replaces_a_worker_at_once() -> None:
    """The next worker would start only after a minute."""
    starts = iter([0.0, 0.0])

    class Slow(Scripted):
        async def configure(self, root: Path, settings: dict[str, Any]) -> None:
            await asyncio.sleep(next(starts, 50))

    async def replaced(workers: WorkerPool) -> None:
        await until(lambda: workers.counts.spare)
        assert workers.counts.ready == 1
        with pytest.raises(DocumentFailed):
            await workers.ask(Operation.DOCUMENT)
        began = asyncio.get_running_loop().time()
        assert await workers.ask(Operation.DOCUMENT) == DONE
        assert asyncio.get_running_loop().time() - began < 0.1
        assert (workers.counts.restarts, workers.counts.spare) == ({"late": 1}, 0)
        await until(lambda: workers.counts.spare)

    kept(replaced, Slow(never), Slow(at_once), limits=WorkerLimits(workers=1, spares=1))


def test_a_spare_that_dies_is_replaced() -> None:
    class Mortal(Scripted):
        def __init__(self, end: asyncio.Event) -> None:
            super().__init__(at_once)
            self.end = end

        async def wait(self) -> None:
            await self.end.wait()

    first, spare, third = (Mortal(asyncio.Event()) for _ in range(3))

    async def dies(workers: WorkerPool) -> None:
        await until(lambda: workers.counts.spare)
        spare.end.set()
        await until(lambda: workers.counts.restarts == {"died": 1} and workers.counts.spare)
        assert workers.counts.ready == 1

    kept(dies, first, spare, third, limits=WorkerLimits(workers=1, spares=1))
