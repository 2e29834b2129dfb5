"""What is said before a stack is started where it could not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.components import StackError
from local.prerequisites import MINIMUM_FREE_BYTES, check_disk_space


def test_a_disk_that_is_too_full_for_a_new_stack_is_said(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=f"{tmp_path} has 3 MiB free, and a stack needs 256"):
        check_disk_space(tmp_path, free=3 << 20)
    check_disk_space(tmp_path, free=MINIMUM_FREE_BYTES)


def test_one_that_was_started_before_has_its_room_already(tmp_path: Path) -> None:
    (tmp_path / "etcd" / "member").mkdir(parents=True)
    check_disk_space(tmp_path, free=0)
