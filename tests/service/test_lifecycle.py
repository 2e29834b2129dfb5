"""How a service stops, and what it logs. Most tests start a process."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from poolhouse.service.lifecycle import report_error
from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]

SERVICE = """
import asyncio, sys
from poolhouse.service.lifecycle import run

async def forever(name, ending=0.0):
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(ending)
        print(name, "ended", flush=True)

async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(forever("one"))
        group.create_task(forever("two", ENDING))
        print("ready", flush=True)

async def fails():
    async with asyncio.TaskGroup() as group:
        group.create_task(forever("one"))
        await asyncio.sleep(0)
        raise RuntimeError("broken")

async def returns():
    pass

sys.exit(run(MAIN, grace_seconds=GRACE))
"""


def start(main: str = "main", ending: float = 0.0, grace: float = 60.0) -> subprocess.Popen[str]:
    text = SERVICE.replace("MAIN", main).replace("ENDING", str(ending)).replace("GRACE", str(grace))
    return subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout.readline() == "ready\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_tasks_and_the_exit_code_is_0(number: signal.Signals) -> None:
    with start(ending=0.2) as process:
        ready(process)
        process.send_signal(number)
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert sorted(out.splitlines()) == ["one ended", "two ended"]


def test_tasks_that_do_not_end_are_named() -> None:
    with start(ending=100, grace=0.3) as process:
        ready(process)
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "one ended" in out
    assert "did not stop within" in errors
    assert re.search(r"tasks running: Task-\d+ \(<string>:\d+ in forever\)", errors)


def test_a_second_signal_ends_the_process_at_once() -> None:
    with start(ending=100, grace=100) as process:
        ready(process)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "one ended\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_SECONDS) != 0


def test_a_failure_is_logged_without_exception_groups_and_the_exit_code_is_1() -> None:
    with start("fails") as process:
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert out == "one ended\n"
    assert "failed: broken" in errors


def test_a_main_that_returns_exits_with_0() -> None:
    with start("returns") as process:
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0


CLOSED = RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


@pytest.mark.parametrize(
    ("message", "error", "level"),
    [
        pytest.param("Fatal error on SSL protocol", CLOSED, logging.DEBUG, id="an answer after the connection's end"),
        pytest.param("Fatal error on SSL protocol", RuntimeError("broken"), logging.ERROR, id="another error of TLS"),
        pytest.param(
            "Fatal error on SSL protocol", OSError("the handler is closed"), logging.ERROR, id="an error of the system"
        ),
        pytest.param("Task exception was never retrieved", CLOSED, logging.ERROR, id="the same error in a task"),
        pytest.param("Unclosed client session", None, logging.ERROR, id="no error"),
    ],
)
def test_only_the_use_of_a_closed_tls_connection_is_no_error(
    message: str, error: Exception | None, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "poolhouse.service.lifecycle")
    loop = asyncio.new_event_loop()
    try:
        report_error(loop, {"message": message, "exception": error} if error else {"message": message})
    finally:
        loop.close()
    assert [record.levelno for record in caplog.records] == [level]
