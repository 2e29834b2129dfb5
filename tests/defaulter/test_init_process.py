"""The init process of a container reaps orphans, forwards signals and exits with the status of the service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.waiting import PATIENCE_SECONDS, wait_until

SERVICE = """
import os, signal, sys, time
from defaulter.init_process import run_under_init

def service():
    {body}

sys.exit(run_under_init(service, first=True))
"""


def first(body: str, **options: object) -> subprocess.Popen[str]:
    """As the first process of a container: it adopts every orphan below it."""
    program = SERVICE.format(body=textwrap.indent(textwrap.dedent(body), "    ").strip())
    subreaper = "import ctypes; ctypes.CDLL(None).prctl(36, 1)\n"
    return subprocess.Popen([sys.executable, "-c", subreaper + program], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return 0", 0),
        ("return 3", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_it_exits_with_the_status_of_the_service(body: str, code: int) -> None:
    assert first(body).wait(PATIENCE_SECONDS) == code


def test_signals_reach_the_service() -> None:
    process = first(
        """
        # A handler would not end a sleep that begins just after the signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        print("up", flush=True)
        signal.sigwait({signal.SIGTERM})
        return 7
        """
    )
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 7
    process.stdout.close()


def test_an_orphan_is_reaped() -> None:
    """The service forks twice, as a daemon does. The orphan must disappear."""
    process = first(
        """
        middle = os.fork()
        if middle == 0:
            orphan = os.fork()
            if orphan == 0:
                time.sleep(0.1)
                os._exit(0)
            print(orphan, flush=True)
            os._exit(0)
        os.waitpid(middle, 0)
        time.sleep(600)
        """
    )
    orphan = int(process.stdout.readline())
    try:
        wait_until(lambda: not os.path.exists(f"/proc/{orphan}"))
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        process.stdout.close()
