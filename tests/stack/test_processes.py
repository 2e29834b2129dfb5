from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from poolhouse.stack.paths import DIR_VARIABLE
from poolhouse.stack.processes import end_processes, find_processes

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


def start(command: list[str], **marks: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, env={**os.environ, **marks}, stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


@pytest.mark.parametrize("name", ["stack", "a\udcff"], ids=["a usual name", "a byte of no character"])
def test_only_processes_of_the_stack_are_ended(tmp_path: Path, name: str) -> None:
    tmp_path /= name
    ours = start(SLEEP, **{DIR_VARIABLE: str(tmp_path)})
    deaf = start(DEAF, **{DIR_VARIABLE: str(tmp_path)})
    others = [
        start(SLEEP, **{DIR_VARIABLE: f"{tmp_path}-2"}),
        start(SLEEP, OTHER=f"{DIR_VARIABLE}={tmp_path}"),
        start(SLEEP),
    ]
    try:
        ended = end_processes(tmp_path, grace_seconds=0.3)
        assert {found.pid for found in ended} == {ours.pid, deaf.pid}
        assert [process.poll() for process in others] == [None, None, None]
    finally:
        for process in (ours, deaf, *others):
            process.kill()
            process.wait()


def test_the_caller_is_not_found(tmp_path: Path) -> None:
    script = f"""
import os, sys
from pathlib import Path
from poolhouse.stack.processes import find_processes
print([found.pid for found in find_processes(Path({str(tmp_path)!r}))])
"""
    env = {**os.environ, DIR_VARIABLE: str(tmp_path)}
    answer = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_an_ended_process_is_not_found(tmp_path: Path) -> None:
    process = start(SLEEP, **{DIR_VARIABLE: str(tmp_path)})
    process.kill()
    process.wait()
    assert list(find_processes(tmp_path)) == []
