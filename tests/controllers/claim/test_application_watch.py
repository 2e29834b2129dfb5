"""The controllers see a change of an application at once, if its agent offers a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from controllers.claim.application_watch import BURST, MAX_WATCHES, ApplicationWatches
from controllers.claim.memory import ClaimRecord
from controllers.warmpool.agent import application_health
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_vm import WarmVM
from tests.controllers.claim.builders import a_claim, claimed_vm
from tests.waiting import eventually

CLAIM, VM = a_claim(), claimed_vm()


class Agents:
    def __init__(self) -> None:
        self.opened = 0
        self.answers: asyncio.Queue[Health | Exception | None] = asyncio.Queue()

    async def watch_application(self, vm: WarmVM) -> AsyncIterator[Health]:
        self.opened += 1
        while (answer := await self.answers.get()) is not None:
            if isinstance(answer, Exception):
                raise answer
            yield answer


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_each_answer_reconciles_the_claim() -> None:
    agents, record, enqueued = Agents(), ClaimRecord(), list[Any]()
    watches = ApplicationWatches(lambda key, after: enqueued.append((key, after)), lambda: 7.0)
    running = asyncio.ensure_future(watches.run())
    await settled()
    for _ in range(2):
        watches.follow(CLAIM, VM, agents, record)
    await settled()
    assert agents.opened == 1, "a claim has one stream"
    failed = application_health({"phase": "Failed"})
    agents.answers.put_nowait(failed)
    await settled()
    assert record.application_health == (failed, 7.0)
    assert enqueued == [(CLAIM.key, 0.0)]
    agents.answers.put_nowait(None)
    await settled()
    watches.follow(CLAIM, VM, agents, record)
    await settled()
    assert agents.opened == 2, "a stream that ended is opened again"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_agent_without_a_stream_is_not_asked_again() -> None:
    agents = Agents()
    agents.answers.put_nowait(None)
    watches = ApplicationWatches(lambda key, after: None, lambda: 0.0)
    running = asyncio.ensure_future(watches.run())
    await settled()
    record = ClaimRecord()
    for _ in range(3):
        watches.follow(CLAIM, VM, agents, record)
        await settled()
    assert agents.opened == 1
    watches.follow(CLAIM, replace(VM, uid="another"), agents, record)
    await settled()
    assert agents.opened == 2, "another VM of the claim may have another agent"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("pause", "read"),
    [
        pytest.param(0.0, BURST + 1, id="too many at once"),
        pytest.param(0.5, 2 * BURST + 1, id="too many for long"),
        pytest.param(1.0, 3 * BURST, id="one each second"),
    ],
)
async def test_an_agent_does_not_occupy_the_controllers_by_its_answers(pause: float, read: int) -> None:
    """Each answer may cost a write."""
    agents, now, enqueued = Agents(), [0.0], list[Any]()

    def enqueue(key: Any, after: float) -> None:
        enqueued.append(key)
        now[0] += pause

    watches, record = ApplicationWatches(enqueue, lambda: now[0]), ClaimRecord()
    running = asyncio.ensure_future(watches.run())
    await settled()
    watches.follow(CLAIM, VM, agents, record)
    for number in range(3 * BURST):
        agents.answers.put_nowait(application_health({"phase": "Running", "message": str(number)}))
    await eventually(lambda: len(enqueued) == read)
    await settled()
    assert len(enqueued) == read
    watches.follow(CLAIM, VM, agents, record)
    await settled()
    assert agents.opened == (1 if pause == 1.0 else 2), "the next check opens it again"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_streams_of_a_namespace_leave_some_for_others() -> None:
    """Each of its claims may have one. An application that runs then shows its changes a period later."""
    agents = Agents()
    watches = ApplicationWatches(lambda key, after: None, lambda: 0.0)
    running = asyncio.ensure_future(watches.run())
    await settled()
    opened = dict[str, int]()
    for namespace in ("a", "b", "c", "d"):
        before = agents.opened
        for number in range(MAX_WATCHES):
            claim = replace(CLAIM, namespace=namespace, uid=f"{namespace}-{number}")
            watches.follow(claim, VM, agents, ClaimRecord())
        await settled()
        opened[namespace] = agents.opened - before
    assert opened == {"a": MAX_WATCHES / 2, "b": MAX_WATCHES / 4, "c": MAX_WATCHES / 8, "d": MAX_WATCHES / 16}
    agents.answers.put_nowait(application_health({"phase": "Running"}))
    agents.answers.put_nowait(None)
    await settled()
    watches.follow(replace(CLAIM, namespace="d"), VM, agents, ClaimRecord())
    await settled()
    assert agents.opened == sum(opened.values()) + 1, "a stream that ends is another one's"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_only_the_leader_opens_streams() -> None:
    agents = Agents()
    ApplicationWatches(lambda key, after: None, lambda: 0.0).follow(CLAIM, VM, agents, ClaimRecord())
    await settled()
    assert agents.opened == 0


async def test_a_stream_that_fails_does_not_end_the_others() -> None:
    agents = Agents()
    agents.answers.put_nowait(AttributeError("an answer that nobody has foreseen"))
    watches = ApplicationWatches(lambda key, after: None, lambda: 0.0)
    running = asyncio.ensure_future(watches.run())
    await settled()
    watches.follow(CLAIM, VM, agents, ClaimRecord())
    await settled()
    assert agents.opened == 1
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
