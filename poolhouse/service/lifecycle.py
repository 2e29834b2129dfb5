"""Runs a service until it fails or gets a signal."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from poolhouse.service import logs
from poolhouse.service.settings import LogSettings
from poolhouse.service.unfinished import describe_unfinished

T = TypeVar("T")

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
USE_OF_CLOSED_TLS = ("Fatal error on SSL protocol", "the handler is closed")
"""uvloop's message, and the end of its error"""
GRACE_SECONDS = 30.0
COLLECT_AFTER = 10_000
"""Containers that are created before the garbage collector looks for cycles. Python's 700 are a few parsed objects of
Kubernetes, which contain no cycles."""


async def wait_for_stop_signal() -> None:
    """Waits for SIGTERM or SIGINT. After that, a second signal ends the process at once."""
    received = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, received.set)
    try:
        await received.wait()
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def start(service: str, read: Callable[[Mapping[str, str]], T], main: Callable[[T], Awaitable[Any]]) -> int:
    """Runs a service with the settings that `read` parses from the environment. Returns the exit code of `run`, or 2 if
    a setting is invalid."""
    try:
        settings = read(os.environ)
        log_settings = LogSettings.read(os.environ)
    except ValueError as error:
        print(f"poolhouse {service}: {error}", file=sys.stderr)
        return 2
    logs.configure(service, log_settings.log_format, log_settings.log_level)
    return run(lambda: main(settings))


def run(main: Callable[[], Awaitable[Any]], *, grace_seconds: float = GRACE_SECONDS) -> int:
    """Runs a service until it returns, fails or gets a signal. Returns the exit code: 0, or 1 after a failure.

    A signal cancels `main`, which then has `grace_seconds` to finish requests and release its lease. After that the
    process exits, and the log names the tasks that had not ended. `main` must run its tasks in a TaskGroup.
    """
    keep_objects()
    gc.set_threshold(COLLECT_AFTER)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_until_stopped(main, grace_seconds))
    except KeyboardInterrupt:
        return 1


def keep_objects() -> None:
    """Excludes all present objects from later garbage collections: a service keeps its modules, and the controllers
    keep what informers have listed. A full collection would visit 300,000 objects while requests wait."""
    gc.collect()
    gc.freeze()


async def _until_stopped(main: Callable[[], Awaitable[Any]], grace_seconds: float) -> int:
    async def work() -> None:
        await main()

    asyncio.get_running_loop().set_exception_handler(report_error)
    # Sets the signal handlers before `main` starts, because `main` needs a graceful stop.
    stop = asyncio.create_task(wait_for_stop_signal(), name="stop-signal")
    running = asyncio.create_task(work(), name="main")
    try:
        await asyncio.wait({running, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            log.info("signal received; stopping")
            running.cancel()
            await _end(running, grace_seconds)
    finally:
        stop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stop
    if running.cancelled():
        return 0
    if error := running.exception():
        for each in _leaves(error):
            log.critical("failed: %s", each, exc_info=each)
        return 1
    return 0


def report_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The exception handler of the loop: logs what asyncio and uvloop report outside of tasks. An answer can arrive on
    a TLS connection that this process has just closed: uvloop still decrypts it, cannot write to the connection, and
    reports that as an error (issue 506 of MagicStack/uvloop). Nobody waits for such an answer, so that it is only
    logged at DEBUG."""
    message, end = USE_OF_CLOSED_TLS
    error = context.get("exception")
    if context.get("message") == message and isinstance(error, RuntimeError) and str(error).endswith(end):
        log.debug("an answer arrived on a closed TLS connection: %s", error)
    else:
        loop.default_exception_handler(context)


async def _end(running: asyncio.Task[None], grace_seconds: float) -> None:
    done, _ = await asyncio.wait({running}, timeout=grace_seconds)
    if not done:
        log.critical(
            "did not stop within %.0f s; the process exits with these tasks running: %s",
            grace_seconds,
            describe_unfinished(asyncio.all_tasks()),
        )
        logging.shutdown()
        os._exit(1)


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside the exception groups of TaskGroups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
