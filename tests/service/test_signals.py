"""Which signals end a command, and what it can still do then. The tests start processes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]

COMMAND = """
import os, signal, sys, time
from poolhouse.service.signals import exit_at_signals

report = int(sys.argv[1])
for terminal in sys.argv[2:]:  # the leader of a session gets the terminal that it opens
    os.open(terminal, os.O_RDWR)
exit_at_signals()
try:
    os.write(report, b"ready")
    time.sleep(60)
finally:
    print("cleaning up", flush=True)
    os.write(report, b", clean")
"""


@pytest.mark.parametrize(
    ("sent", "code"),
    [pytest.param(signal.SIGTERM, 143, id="SIGTERM"), pytest.param(None, 129, id="its terminal is closed")],
)
def test_a_command_cleans_up_after(sent: signal.Signals | None, code: int) -> None:
    (ours, terminal), (reports, report) = pty.openpty(), os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(report), os.ttyname(terminal)],
        cwd=ROOT,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        pass_fds=(report,),
    )
    os.close(terminal)
    os.close(report)
    try:
        assert os.read(reports, 100) == b"ready"
        if sent is not None:
            process.send_signal(sent)
    finally:
        if sent is None:
            os.close(ours)
        assert process.wait(PATIENCE_SECONDS) == code
        if sent is not None:
            os.close(ours)
    assert os.read(reports, 100) == b", clean"
    os.close(reports)


def test_a_command_of_nohup_outlives_its_terminal() -> None:
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    with subprocess.Popen([sys.executable, "-c", ignoring + COMMAND, "1"], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"ready"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 143
