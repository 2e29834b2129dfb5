"""How a service begins and ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS = 30.0


async def wait_for_stop_signal() -> None:
    """Returns when the process is asked to end (SIGTERM or SIGINT). From then on the signals have their usual effect
    again: a second one ends the process at once."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, asked.set)
    try:
        await asked.wait()
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def run(main: Callable[[], Awaitable[Any]], *, grace_seconds: float = GRACE_SECONDS) -> int:
    """Runs a service until it returns, fails or is asked to end, and returns its exit code: 0, or 1 if it failed.

    When it is asked to end, `main` is cancelled and has the grace to end what it began (drain, release); what is still
    running then is named in the log and the process ends without it. `main` holds its tasks in a TaskGroup, so none of
    them outlives it.
    """
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_until_stopped(main, grace_seconds))
    except KeyboardInterrupt:
        return 1


async def _until_stopped(main: Callable[[], Awaitable[Any]], grace_seconds: float) -> int:
    async def work() -> None:
        await main()

    # First, so that it listens before main does anything that must be ended.
    asked = asyncio.create_task(wait_for_stop_signal(), name="stopped")
    running = asyncio.create_task(work(), name="main")
    try:
        await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            log.info("asked to end")
            running.cancel()
            await _end(running, grace_seconds)
    finally:
        asked.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asked
    if running.cancelled():
        return 0
    if error := running.exception():
        for each in _leaves(error):
            log.critical("failed: %s", each, exc_info=each)
        return 1
    return 0


async def _end(running: asyncio.Task[None], grace_seconds: float) -> None:
    done, _ = await asyncio.wait({running}, timeout=grace_seconds)
    if not done:
        left = sorted(task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task())
        log.critical("did not end within %.0f s; leaving these behind: %s", grace_seconds, ", ".join(left))
        logging.shutdown()
        os._exit(1)


def _leaves(error: BaseException) -> list[BaseException]:
    """What really happened inside the groups of TaskGroups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
