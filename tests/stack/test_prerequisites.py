"""Checks before a stack starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolhouse.stack.components import StackError
from poolhouse.stack.prerequisites import MINIMUM_FREE_BYTES, MINIMUM_PROCESSES, check_disk_space, check_processes


def test_a_full_disk_is_reported_for_a_new_stack(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=f"{tmp_path} has 3 MiB free, and a stack needs 256"):
        check_disk_space(tmp_path, free=3 << 20)
    check_disk_space(tmp_path, free=MINIMUM_FREE_BYTES)


def test_an_existing_stack_needs_no_free_space(tmp_path: Path) -> None:
    (tmp_path / "etcd" / "member").mkdir(parents=True)
    check_disk_space(tmp_path, free=0)


def test_too_few_processes_are_reported_before_services_are_aborted() -> None:
    check_processes(MINIMUM_PROCESSES)
    with pytest.raises(StackError, match="`ulimit -u` is 40"):
        check_processes(40)
