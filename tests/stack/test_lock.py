"""The lock of a stack's directory."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from poolhouse.stack.components import StackError
from poolhouse.stack.lock import hold, holder, holder_in_proc


@pytest.mark.parametrize("ask", [holder, holder_in_proc], ids=["by the lock", "by the kernel's list"])
def test_holder_returns_the_pid_while_the_lock_is_held(tmp_path: Path, ask: Callable[[Path], int | None]) -> None:
    lock = tmp_path / "lock"
    with hold(lock):
        assert ask(lock) == os.getpid()
        with pytest.raises(StackError, match=f"pid {os.getpid()}"), hold(lock):
            pass
    assert ask(lock) is None


def test_parallel_queries_do_not_count_as_a_stack(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with hold(lock):
        pass
    with lock.open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert holder(lock) is None, "though another asks"
        moment = threading.Timer(0.05, asking.close)
        moment.start()
        with hold(lock):
            assert holder_in_proc(lock) == os.getpid()
        moment.join()


def test_a_missing_lock_file_has_no_holder(tmp_path: Path) -> None:
    assert holder(tmp_path / "lock") is None
