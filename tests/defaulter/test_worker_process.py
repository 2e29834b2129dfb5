"""A worker process as its parent sees it."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop

from defaulter.worker_process import WorkerProcess
from defaulter.worker_protocol import Operation


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(uvloop.new_event_loop, id="the service's loop"),
        pytest.param(asyncio.new_event_loop, id="asyncio's own"),
    ],
)
def test_a_request_to_an_ended_worker_raises(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def told() -> None:
        process = await asyncio.create_subprocess_exec("true", stdin=PIPE, stdout=PIPE)
        worker = WorkerProcess(process)
        await worker.wait()
        while True:
            # Until the loop knows that the pipe is closed, the request is sent, and there is no response.
            with suppress(EOFError):
                await worker.ask(Operation.DOCUMENT, b"{}")
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=loop) as runner, pytest.raises(OSError, match=r"."):
        runner.run(told())
