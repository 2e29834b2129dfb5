"""What `poolhouse status` prints of the embedded stack."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from pathlib import Path

import pytest

from poolhouse.cli.up import _clocked, _table


@pytest.mark.parametrize(
    ("phase", "ready", "said"),
    [
        pytest.param("ready", True, ": ready (pid 7, engine qemu)", id="all parts are ready"),
        pytest.param("ready", False, ": not ready: webhook (pid 7, engine qemu)", id="one does not answer any more"),
        pytest.param("starting", False, ": starting (pid 7, engine qemu)", id="not yet"),
    ],
)
def test_the_first_line_says_whether_the_stack_is_ready(tmp_path: Path, phase: str, ready: bool, said: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    parts = [{"name": name, "pid": 1, "ready": ready or name == "etcd", "restarts": 0} for name in ("etcd", "webhook")]
    found = {"dir": "stack", "running": True, "pid": 7, "engine": "qemu", "phase": phase, "parts": parts}
    table = _table({**found, "endpoints": {}, "pools": [], "kubeconfig": kubeconfig})
    assert table.splitlines()[0] == f"embedded stack in stack{said}"


def test_a_running_stack_whose_disk_is_full_says_so(tmp_path: Path) -> None:
    found = {"dir": "stack", "running": True, "pid": 7, "engine": "qemu", "phase": "ready", "message": "it is full"}
    table = _table({**found, "endpoints": {}, "pools": [], "kubeconfig": tmp_path / "kubeconfig"})
    assert table.splitlines()[1] == "it is full"


@pytest.mark.parametrize(
    ("number", "ends"),
    [
        pytest.param(errno.ENOSPC, False, id="the disk of its log is full"),
        pytest.param(errno.EPIPE, True, id="nobody reads its output"),
    ],
)
def test_a_full_disk_does_not_end_the_stack_and_a_closed_pipe_does(number: int, ends: bool) -> None:
    def fail(text: str) -> None:
        raise OSError(number, "")

    with pytest.raises(BrokenPipeError) if ends else nullcontext():
        _clocked(fail)("etcd is ready")
