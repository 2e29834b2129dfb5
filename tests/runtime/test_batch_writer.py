"""Batches of writes for one owner, and their expectations."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from poolhouse.runtime.batch_writer import MAX_REFUSED, BatchWriter, ExpectedEvents, NotSent, slow_start_batch
from poolhouse.runtime.errors import Conflict, Forbidden, Invalid, QuotaExceeded, Unreachable
from poolhouse.runtime.expectations import TIMEOUT_SECONDS, Expectations
from tests.cost import instructions


class Calls:
    def __init__(self, count: int, failing: set[int] | None = None) -> None:
        self.batches: list[int] = []
        self.under_way = 0
        self.list = [lambda number=number: self.call(number) for number in range(count)]
        self.failing = failing or set()

    async def call(self, number: int) -> int:
        self.under_way += 1
        await asyncio.sleep(1)
        if self.under_way:
            self.batches.append(self.under_way)
            self.under_way = 0
        if number in self.failing:
            raise RuntimeError(number)
        return number


@pytest.mark.parametrize(
    ("count", "first", "most", "batches"),
    [
        (0, 1, 250, []),
        (1, 1, 250, [1]),
        (10, 1, 250, [1, 2, 4, 3]),
        (10, 1, 2, [1, 2, 2, 2, 2, 1]),
        (10, 4, 250, [4, 6]),
        (10, 9, 3, [3, 3, 3, 1]),
    ],
)
async def test_batches_double_up_to_the_maximum(count: int, first: int, most: int, batches: list[int]) -> None:
    calls = Calls(count)
    assert await slow_start_batch(calls.list, first=first, most=most) == list(range(count))
    assert calls.batches == batches


async def test_the_first_batch_with_a_failure_is_the_last() -> None:
    calls = Calls(100, failing={4})
    results = await slow_start_batch(calls.list)
    assert len(results) == 7, "1 + 2 + 4"
    assert [result for result in results if not isinstance(result, Exception)] == [0, 1, 2, 3, 5, 6]
    assert isinstance(results[4], RuntimeError)


async def test_a_call_that_is_always_refused_is_made_once() -> None:
    assert len(await slow_start_batch(Calls(1000, failing={0}).list)) == 1


async def test_a_cancellation_cancels_the_calls() -> None:
    ended = 0

    async def call() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1

    task = asyncio.create_task(slow_start_batch([call] * 10, first=10))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert ended == 10


def trace(action: str) -> ExpectedEvents:
    return ExpectedEvents(deletes=(action,)) if action.startswith("-") else ExpectedEvents(creates=(action,))


REFUSED, UNANSWERED = Conflict("no", status=409), Unreachable("nothing", call="create")


@dataclass
class Server:
    """Answers as configured, and records each call with the expectations at that time."""

    expectations: Expectations[str]
    answers: dict[str, Exception] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def __call__(self, action: str) -> None:
        self.asked.append((action, sum(map(len, self.expectations.open("owner")))))
        if action in self.answers:
            raise self.answers[action]


@pytest.fixture
def expectations() -> Expectations[str]:
    return Expectations()


@pytest.fixture
def server(expectations: Expectations[str]) -> Server:
    return Server(expectations)


@pytest.fixture
def writes(expectations: Expectations[str]) -> BatchWriter:
    return BatchWriter(expectations, lambda: 0.0, trace)


async def test_all_writes_are_expected_before_the_first_call(writes: BatchWriter, server: Server) -> None:
    made = await writes.make("owner", "Create", ["a", "b", "-c"], server)
    assert made == [("a", None), ("b", None), ("-c", None)]
    assert server.asked[0] == ("a", 3)
    assert [set(each) for each in server.expectations.open("owner")] == [{"a", "b"}, {"-c"}]


@pytest.mark.parametrize(
    ("answers", "became", "left"),
    [
        pytest.param({"b": REFUSED}, [None, Conflict, None], {"a", "c"}, id="a refused write is not expected"),
        pytest.param(
            {"b": UNANSWERED}, [None, Unreachable, None], {"a", "b", "c"}, id="a write without an answer is expected"
        ),
        pytest.param(
            {"a": REFUSED}, [Conflict, NotSent, NotSent], set(), id="a write that was not sent is not expected"
        ),
    ],
)
async def test_expectations_of_failed_writes_are_taken_back(
    writes: BatchWriter, server: Server, answers: dict[str, Exception], became: list[type | None], left: set[str]
) -> None:
    server.answers = answers
    made = await writes.make("owner", "Create", ["a", "b", "c"], server)
    assert [type(error) if error else None for _, error in made] == became
    assert server.expectations.open("owner")[0] == left


async def test_expectations_do_not_end_before_the_last_call(expectations: Expectations[str]) -> None:
    """A large batch may take longer than the timeout, and the stores show its last writes later."""
    now = 0.0
    writes = BatchWriter(expectations, lambda: now, trace)

    async def slow(action: str) -> None:
        nonlocal now
        now += 200.0
        expectations.creation_observed("owner", "a")
        expectations.expect("other", creates=["x"], now=now)

    await writes.make("owner", "Create", ["a", "b", "c"], slow)
    assert now > 2 * TIMEOUT_SECONDS - 1
    assert expectations.open("owner")[0] == {"b", "c"}
    assert not expectations.satisfied("owner", now + TIMEOUT_SECONDS - 1)
    assert expectations.satisfied("owner", now + TIMEOUT_SECONDS)


async def test_the_caller_chooses_the_errors_with_an_unknown_outcome(
    expectations: Expectations[str], server: Server
) -> None:
    writes = BatchWriter(expectations, lambda: 0.0, trace, outcome_unknown=(Conflict,))
    server.answers = {"a": REFUSED, "b": UNANSWERED}
    await writes.make("owner", "Create", ["a", "b"], server, careful=False)
    assert expectations.open("owner")[0] == {"a"}


async def test_a_verb_starts_with_one_write_until_a_batch_was_accepted(writes: BatchWriter, server: Server) -> None:
    async def sent(verb: str = "Create", *, careful: bool = True) -> int:
        """How many calls are made when the first is refused."""
        server.asked, server.answers = [], {"x": REFUSED}
        await writes.make("owner", verb, ["x", "y", "z"], server, careful=careful)
        return len(server.asked)

    assert await sent() == 1
    await writes.make("owner", "Create", ["a", "b"], server)
    assert await sent("Delete") == 1, "each verb counts separately"
    assert await sent() == 3
    assert await sent() == 1, "after a failure a batch starts with one write"
    assert await sent(careful=False) == 3
    await writes.make("owner", "Create", ["a"], server)
    writes.forget("owner")
    assert await sent() == 1


@pytest.mark.parametrize(
    ("error", "rounds"),
    [
        pytest.param(Forbidden("not a", status=403), ["a", "bcda", "a"], id="an admission policy"),
        pytest.param(Invalid("not a", status=422), ["a", "bcda", "a"], id="an invalid object"),
        pytest.param(QuotaExceeded("full", status=403), ["a", "a", "a"], id="a full quota refuses the next write too"),
        pytest.param(Conflict("changed", status=409), ["a", "a", "a"], id="a conflict"),
    ],
)
async def test_a_refused_write_does_not_delay_the_others(
    writes: BatchWriter, server: Server, error: Exception, rounds: list[str]
) -> None:
    server.answers, left = {"a": error}, ["a", "b", "c", "d"]
    for asked in rounds:
        server.asked = []
        made = await writes.make("owner", "Create", left, server)
        assert "".join(action for action, _ in server.asked) == asked
        left = sorted(action for action, failed in made if failed)


async def test_refused_writes_are_known_until_they_are_accepted(writes: BatchWriter, server: Server) -> None:
    server.answers = {each: Forbidden("no", status=403) for each in ("a", "-b")}
    for each in ("a", "-b"):
        await writes.make("owner", "Any", [each], server)
    await writes.make("another", "Any", ["a"], server)
    assert writes.refused("owner") == {"a", "-b"}
    server.answers = {}
    await writes.make("owner", "Any", ["a"], server)
    assert writes.refused("owner") == {"-b"}
    writes.forget("owner")
    assert not writes.refused("owner")
    assert writes.refused("another") == {"a"}


async def test_forgetting_an_owner_costs_the_same_among_many(writes: BatchWriter, server: Server) -> None:
    async def cost(count: int) -> int:
        for number in range(count):
            await writes.make(f"owner-{number}", "Create", ["a"], server)
        return instructions(lambda: writes.forget("owner-0"))

    assert await cost(10) == await cost(100)


async def test_a_write_that_would_be_refused_comes_last(writes: BatchWriter, server: Server) -> None:
    writes.expect("owner", ["a", "b"])
    writes.not_begun("owner", ["a", "b"], Forbidden("not a", status=403))
    assert not any(server.expectations.open("owner"))
    await writes.make("owner", "Create", ["a", "b"], server)
    assert [action for action, _ in server.asked] == ["b", "a"]


async def test_the_number_of_remembered_refusals_is_bounded(writes: BatchWriter) -> None:
    async def refuse(action: str) -> None:
        raise Forbidden("no", status=403)

    names = [f"n{number}" for number in range(MAX_REFUSED + 1)]
    await writes.make("owner", "Create", names, refuse, most=len(names), careful=False)
    assert writes.refused("owner") == set(names[1:])


async def test_no_actions_make_no_call(writes: BatchWriter, server: Server) -> None:
    assert await writes.make("owner", "Create", [], server) == []
    assert server.expectations.satisfied("owner", 0.0)


async def test_without_an_owner_there_are_no_expectations(writes: BatchWriter, server: Server) -> None:
    assert await writes.make("", "Release", ["a"], server) == [("a", None)]
    assert server.expectations.satisfied("", 0.0)
