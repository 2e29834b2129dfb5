"""The controllers see a change of an application at once, if its agent offers a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from controllers.claim.application_watch import ApplicationWatches
from controllers.claim.snapshot import ClaimRecord
from controllers.warmpool.agent import application_health
from controllers.warmpool.backends import Backend, Health
from controllers.warmpool.warm_vm import WarmVM
from tests.controllers.claim.builders import a_claim, claimed_vm

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
        watches.follow(CLAIM, VM, cast(Backend, agents), record)
    await settled()
    assert agents.opened == 1, "a claim has one stream"
    failed = application_health({"phase": "Failed"})
    agents.answers.put_nowait(failed)
    await settled()
    assert record.application_health == (failed, 7.0)
    assert enqueued == [(CLAIM.key, 0.0)]
    agents.answers.put_nowait(None)
    await settled()
    watches.follow(CLAIM, VM, cast(Backend, agents), record)
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
    for _ in range(3):
        watches.follow(CLAIM, VM, cast(Backend, agents), ClaimRecord())
        await settled()
    assert agents.opened == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_only_the_leader_opens_streams() -> None:
    agents = Agents()
    ApplicationWatches(lambda key, after: None, lambda: 0.0).follow(CLAIM, VM, cast(Backend, agents), ClaimRecord())
    await settled()
    assert agents.opened == 0


async def test_a_stream_that_fails_does_not_end_the_others() -> None:
    agents = Agents()
    agents.answers.put_nowait(AttributeError("an answer that nobody has foreseen"))
    watches = ApplicationWatches(lambda key, after: None, lambda: 0.0)
    running = asyncio.ensure_future(watches.run())
    await settled()
    watches.follow(CLAIM, VM, cast(Backend, agents), ClaimRecord())
    await settled()
    assert agents.opened == 1
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
