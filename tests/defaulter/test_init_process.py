"""The first process of a container takes notice of orphans, passes signals on and ends as the service did."""

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
    """As the first process of a container: whoever is orphaned below it becomes its child."""
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
def test_it_ends_as_the_service_did(body: str, code: int) -> None:
    assert first(body).wait(PATIENCE_SECONDS) == code


def test_signals_reach_the_service() -> None:
    process = first(
        """
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        print("up", flush=True)
        time.sleep(600)
        """
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 7
    process.stdout.close()


def test_an_orphan_does_not_stay_a_zombie() -> None:
    """It forks twice, as a daemon does; what is left of it must disappear, or who waits for that waits for ever."""
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
    assert process.stdout is not None
    orphan = int(process.stdout.readline())
    try:
        wait_until(lambda: not os.path.exists(f"/proc/{orphan}"))
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        process.stdout.close()
