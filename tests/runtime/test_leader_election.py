"""Whatever fails between a leader and the API server, its work ends before the work of another leader starts."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.runtime.api import Api
from poolhouse.runtime.leader_election import LeaderElector, LeaseLost
from tests.runtime.faulty_server import Hangup, Request, Server, status
from tests.virtual_loop import VirtualLoop

Fault = Callable[[Request, Callable[[], Awaitable[None]]], Awaitable[None]]


class Leases:
    """A Lease with resourceVersions, as in the API server; each client may have a fault on its way to it."""

    def __init__(self, server: Server) -> None:
        self.document: dict[str, Any] | None = None
        self.version = 0
        self.faults: dict[str, Fault] = {}
        server.script = self

    async def __call__(self, request: Request) -> None:
        fault = self.faults.get(request.headers["user-agent"])
        if fault is None:
            await self.serve(request)
        else:
            await fault(request, lambda: self.serve(request))

    async def serve(self, request: Request) -> None:
        await request.answer(*self.decide(request))

    def decide(self, request: Request) -> tuple[int, Any]:
        match request.method:
            case "GET" if self.document is None:
                return 404, status(404, "NotFound")
            case "GET":
                return 200, self.document
            case "POST" if self.document is not None:
                return 409, status(409, "AlreadyExists")
            case "PUT" if self.document is None:
                return 404, status(404, "NotFound")
            case "PUT" if request.document["metadata"]["resourceVersion"] != str(self.version):
                return 409, status(409, "Conflict")
            case _:
                self.put(request.document)
                return 200, self.document

    def put(self, document: dict[str, Any]) -> None:
        self.version += 1
        self.document = document | {"metadata": document["metadata"] | {"resourceVersion": str(self.version)}}

    @property
    def holder(self) -> str:
        return str(self.document["spec"]["holderIdentity"]) if self.document else ""


async def hang(request: Request, serve: Callable[[], Awaitable[None]]) -> None:
    await request.hang()


async def reset(request: Request, serve: Callable[[], Awaitable[None]]) -> None:
    request.reset()
    raise Hangup


async def refuse(request: Request, serve: Callable[[], Awaitable[None]]) -> None:
    await request.answer(500, b"no")


async def throttle(request: Request, serve: Callable[[], Awaitable[None]]) -> None:
    await request.answer(429, status(429, "TooManyRequests"), {"Retry-After": "120"})


async def forbid(request: Request, serve: Callable[[], Awaitable[None]]) -> None:
    await request.answer(403, status(403, "Forbidden"))


async def html(request: Request, serve: Callable[[], Awaitable[None]]) -> None:
    await request.answer(200, b"<html>")


def late(seconds: float) -> Fault:
    """The request is carried out much later, like a delayed packet."""

    async def fault(request: Request, serve: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(seconds)
        await serve()

    return fault


class Work:
    """Records when it runs. After a cancellation it takes `ending` seconds to end."""

    def __init__(self, name: str, diary: list[tuple[float, str, str]], ending: float = 0.0) -> None:
        self.name, self.diary, self.ending = name, diary, ending

    def note(self, what: str) -> None:
        self.diary.append((asyncio.get_running_loop().time(), what, self.name))

    async def __call__(self) -> None:
        self.note("begins")
        try:
            await asyncio.Event().wait()
        finally:
            self.note("cancelled")
            if self.ending:
                await asyncio.sleep(self.ending)
            self.note("ended")


@pytest.fixture
def leases(server: Server) -> Leases:
    return Leases(server)


@pytest.fixture
async def apis(server: Server, tmp_path: Path) -> AsyncIterator[Callable[[str], Awaitable[Api]]]:
    made: list[Api] = []

    async def make(name: str) -> Api:
        made.append(await server.connect(tmp_path, user_agent=name))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def lease_of(apis: Any, name: str, *times: float, **options: Any) -> LeaderElector:
    return LeaderElector(await apis(name), "n", "leader", name, *times, **options)


@asynccontextmanager
async def holding(lease: LeaderElector, work: Callable[[], Awaitable[None]]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(lease.run(work))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def at(diary: list[tuple[float, str, str]], what: str, name: str) -> float:
    return next(time for time, did, who in diary if (did, who) == (what, name))


# Two leaders


@pytest.mark.parametrize(
    "fault", [hang, reset, refuse, throttle, forbid, html, late(14.9), late(3.4), late(30)], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("cut_at", [0.0, 0.7, 1.5, 3.1])
async def test_a_disconnected_leader_stops_before_another_starts(
    leases: Leases, apis: Any, fault: Fault, cut_at: float
) -> None:
    diary: list[tuple[float, str, str]] = []
    a, b = await lease_of(apis, "a"), await lease_of(apis, "b")
    async with holding(a, Work("a", diary, ending=3.5)) as first:
        await asyncio.sleep(10 + cut_at)
        async with holding(b, Work("b", diary)):
            await asyncio.sleep(5)
            leases.faults["a"] = fault
            await asyncio.sleep(60)
            if fault.__name__ == "fault" and not first.done():
                return  # late, but never too late
            assert isinstance(first.exception(), LeaseLost)
            assert at(diary, "ended", "a") < at(diary, "begins", "b")
            assert at(diary, "begins", "b") - at(diary, "cancelled", "a") >= 4
            assert leases.holder == "b"


@pytest.mark.parametrize("seed", range(3))
async def test_no_sequence_of_faults_makes_two_leaders(leases: Leases, apis: Any, seed: int) -> None:
    """Three candidates with changing faults: at no time do two of them work."""
    weather = random.Random(seed)
    diary: list[tuple[float, str, str]] = []

    async def candidate(name: str) -> None:
        lease = await lease_of(apis, name)
        while True:
            with suppress(LeaseLost):
                await lease.run(Work(name, diary, ending=weather.uniform(0, 3)))

    async def blow() -> None:
        while True:
            await asyncio.sleep(weather.uniform(1, 20))
            leases.faults = {
                name: weather.choice([hang, reset, refuse, late(2), late(5), late(11), late(16)])
                for name in "abc"
                if weather.random() < 0.5
            }

    tasks = [asyncio.create_task(candidate(name)) for name in "abc"]
    tasks.append(asyncio.create_task(blow()))
    await asyncio.sleep(600)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    working: str | None = None
    for _, what, who in diary:
        if what == "begins":
            assert working is None, f"{who} begins while {working} works"
            working = who
        elif what == "ended":
            working = None
    assert sum(1 for _, what, _ in diary if what == "begins") >= 3, "and it does change hands"


async def test_the_process_exits_when_cancelled_work_does_not_end(leases: Leases, apis: Any) -> None:
    diary: list[tuple[float, str, str]] = []
    died: list[float] = []
    a = await lease_of(apis, "a", exit_process=lambda: died.append(asyncio.get_running_loop().time()))
    b = await lease_of(apis, "b")
    async with holding(a, Work("a", diary, ending=1000)):
        await asyncio.sleep(10)
        async with holding(b, Work("b", diary)):
            await asyncio.sleep(1)
            leases.faults["a"] = hang
            await asyncio.sleep(60)
            assert len(died) == 1
            assert died[0] < at(diary, "begins", "b")


async def test_the_log_names_the_tasks_that_do_not_end(
    leases: Leases, apis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(Work("a", [])(), name="quick")
            group.create_task(Work("a", [], ending=1000)(), name="slow")

    async with holding(await lease_of(apis, "a", exit_process=lambda: None), work):
        await asyncio.sleep(10)
        leases.faults["a"] = hang
        await asyncio.sleep(20)
        (said,) = (each.getMessage() for each in caplog.records if "do not end" in each.getMessage())
        assert re.fullmatch(r".* do not end: slow \(test_leader_election.py:\d+ in __call__\): the process exits", said)


@pytest.mark.parametrize("seconds", [9, 600])
async def test_a_process_that_was_suspended_ends_its_work_instead_of_itself(
    leases: Leases, apis: Any, seconds: float
) -> None:
    """It notices only after the lease has expired, when its work could not have ended yet."""
    diary: list[tuple[float, str, str]] = []
    died: list[str] = []
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    lease = await lease_of(apis, "a", 8, 5, 1, exit_process=lambda: died.append("a"))
    async with holding(lease, Work("a", diary, ending=0.5)) as task:
        await asyncio.sleep(10)
        loop.now += seconds
        await asyncio.sleep(3)
        assert isinstance(task.exception(), LeaseLost)
    assert not died
    assert [what for _, what, _ in diary] == ["begins", "cancelled", "ended"]


async def test_work_without_a_processor_has_enough_turns_to_end(leases: Leases, apis: Any) -> None:
    died: list[str] = []
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    async def work(depth: int = 10) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work(depth - 1) if depth else asyncio.Event().wait())

    def starve() -> None:
        loop.now += 3
        if not task.done():
            loop.call_soon(starve)

    async with holding(await lease_of(apis, "a", 8, 5, 1, exit_process=lambda: died.append("a")), work) as task:
        await asyncio.sleep(10)
        starve()
        with pytest.raises(LeaseLost):
            await task
    assert not died


# One leader


async def test_the_lease_is_released_when_the_work_returns(leases: Leases, apis: Any) -> None:
    async def work() -> None:
        await asyncio.sleep(30)

    await (await lease_of(apis, "a")).run(work)
    assert leases.holder == ""
    diary: list[tuple[float, str, str]] = []
    now = asyncio.get_running_loop().time()
    async with holding(await lease_of(apis, "b"), Work("b", diary)):
        await asyncio.sleep(1)
        assert at(diary, "begins", "b") - now < 0.1


async def test_the_lease_is_released_when_the_work_raises(leases: Leases, apis: Any) -> None:
    async def work() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await (await lease_of(apis, "a")).run(work)
    assert leases.holder == ""


async def test_a_stop_ends_the_work_before_it_releases_the_lease(leases: Leases, apis: Any) -> None:
    """Cancelled work keeps the lease until it has ended, even longer than the lease lasts."""
    diary: list[tuple[float, str, str]] = []
    async with holding(await lease_of(apis, "b"), Work("b", diary)) as task:
        await asyncio.sleep(10)
        slow = Work("a", diary, ending=40)
        async with holding(await lease_of(apis, "a"), slow):
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.sleep(5)
            assert at(diary, "ended", "b") < at(diary, "begins", "a")
            assert at(diary, "begins", "a") - at(diary, "ended", "b") < 2.5
        assert leases.holder == ""
        assert at(diary, "ended", "a") - at(diary, "cancelled", "a") == pytest.approx(40, abs=0.001)


@pytest.mark.parametrize("seconds", [5, 7])
async def test_a_short_outage_does_not_lose_the_lease(leases: Leases, apis: Any, seconds: float) -> None:
    diary: list[tuple[float, str, str]] = []
    async with holding(await lease_of(apis, "a"), Work("a", diary)) as task:
        for _ in range(5):
            await asyncio.sleep(20)
            leases.faults["a"] = reset
            await asyncio.sleep(seconds)
            leases.faults.clear()
        assert not task.done()
        assert [what for _, what, _ in diary] == ["begins"]


async def test_a_renewal_whose_answer_was_lost_is_recognized(leases: Leases, apis: Any) -> None:
    diary: list[tuple[float, str, str]] = []
    lost = 0

    async def carried_out_unanswered(request: Request, serve: Callable[[], Awaitable[None]]) -> None:
        nonlocal lost
        if request.method == "PUT" and (lost := lost + 1) % 3 == 0:
            leases.decide(request)
            await request.hang()
        await serve()

    leases.faults["a"] = carried_out_unanswered
    async with holding(await lease_of(apis, "a"), Work("a", diary)) as task:
        await asyncio.sleep(300)
        assert not task.done()
        assert [what for _, what, _ in diary] == ["begins"]


async def test_a_lease_with_another_holder_is_lost_at_the_next_renewal(leases: Leases, apis: Any) -> None:
    diary: list[tuple[float, str, str]] = []
    async with holding(await lease_of(apis, "a"), Work("a", diary)) as task:
        await asyncio.sleep(10)
        leases.put(leases.document | {"spec": leases.document["spec"] | {"holderIdentity": "thief"}})
        await asyncio.sleep(2.5)
        assert isinstance(task.exception(), LeaseLost)
        assert leases.holder == "thief", "the lease of another holder is not released"


async def test_a_deleted_lease_is_lost_at_the_next_renewal(leases: Leases, apis: Any) -> None:
    diary: list[tuple[float, str, str]] = []
    async with holding(await lease_of(apis, "a"), Work("a", diary)) as task:
        await asyncio.sleep(10)
        leases.document = None
        await asyncio.sleep(2.5)
        assert isinstance(task.exception(), LeaseLost)


async def test_annotations_of_other_writers_stay(leases: Leases, apis: Any) -> None:
    async with holding(await lease_of(apis, "a"), Work("a", [])) as task:
        await asyncio.sleep(10)
        leases.document["metadata"]["annotations"] = {"x": "y"}
        leases.put(leases.document)
        await asyncio.sleep(30)
        assert not task.done()
        assert leases.document["metadata"]["annotations"] == {"x": "y"}


async def test_a_candidate_uses_its_own_clock_not_the_times_in_the_lease(leases: Leases, apis: Any) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 30, "renewTime": "1999-01-01T00:00:00.000000Z"}
    leases.put({"metadata": {"name": "leader", "namespace": "n"}, "spec": spec})
    diary: list[tuple[float, str, str]] = []
    began = asyncio.get_running_loop().time()
    async with holding(await lease_of(apis, "a"), Work("a", diary)):
        await asyncio.sleep(60)
    assert 30 <= at(diary, "begins", "a") - began <= 33
    assert leases.document["spec"]["leaseTransitions"] == 1


async def test_the_same_identity_gets_its_lease_back_at_once(leases: Leases, apis: Any) -> None:
    leases.put(
        {
            "metadata": {"name": "leader", "namespace": "n"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 4},
        }
    )
    async with holding(await lease_of(apis, "a"), Work("a", diary := [])):
        await asyncio.sleep(1)
    assert diary
    assert leases.document["spec"]["leaseTransitions"] == 4


async def test_waiting_for_a_lease_sends_few_requests(server: Server, leases: Leases, apis: Any) -> None:
    async with holding(await lease_of(apis, "a"), Work("a", [])), holding(await lease_of(apis, "b"), Work("b", [])):
        await asyncio.sleep(300)
        assert server.most_in(10) <= 14
        leases.faults = {"b": refuse}
        server.requests.clear()
        await asyncio.sleep(300)
        asked = [request for request in server.requests if request.headers["user-agent"] == "b"]
        assert len(asked) < 40


async def test_a_candidate_leads_soon_after_a_long_outage(leases: Leases, apis: Any) -> None:
    asked: list[float] = []

    async def fail(request: Request, serve: Callable[[], Awaitable[None]]) -> None:
        asked.append(asyncio.get_running_loop().time())
        await refuse(request, serve)

    leases.faults = {"a": fail}
    async with holding(await lease_of(apis, "a", 8, 5, 1), Work("a", [])):
        await asyncio.sleep(120)
    assert max(later - earlier for earlier, later in pairwise(asked)) < 5.1


async def test_the_times_of_a_lease_are_those_of_the_api_server(leases: Leases, apis: Any) -> None:
    """`doctor` compares them with the clock of the API server, and the clock of the leader may be wrong."""
    api = await apis("a")
    own = api.now()

    async def ahead(request: Request, serve: Callable[[], Awaitable[None]]) -> None:
        date = format_datetime(own + timedelta(hours=2), usegmt=True)
        await request.answer(*leases.decide(request), {"Date": date})

    leases.faults = {"a": ahead}
    async with holding(LeaderElector(api, "n", "leader", "a"), Work("a", [])):
        await asyncio.sleep(30)
    assert leases.document is not None
    assert parse_time(leases.document["spec"]["renewTime"]) - own > timedelta(hours=1)


async def test_contradicting_times_are_refused(leases: Leases, apis: Any) -> None:
    with pytest.raises(ValueError, match="duration_seconds"):
        await lease_of(apis, "a", duration_seconds=5, renew_deadline_seconds=10)
