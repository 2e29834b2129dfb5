"""Checks before a stack starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolhouse.stack.components import StackError
from poolhouse.stack.paths import StackPaths
from poolhouse.stack.prerequisites import (
    FULL_BYTES,
    MINIMUM_FREE_BYTES,
    MINIMUM_PROCESSES,
    check_disk_space,
    check_processes,
    describe_full_disk,
)


def test_a_full_disk_is_reported_for_a_new_stack(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=f"{tmp_path} has 3 MiB free, and a stack needs 256"):
        check_disk_space(tmp_path, free=3 << 20)
    check_disk_space(tmp_path, free=MINIMUM_FREE_BYTES)


def test_an_existing_stack_needs_no_free_space(tmp_path: Path) -> None:
    (tmp_path / "etcd" / "member").mkdir(parents=True)
    check_disk_space(tmp_path, free=0)


@pytest.mark.parametrize(
    ("free", "said"),
    [
        pytest.param({"dir": FULL_BYTES, "shared": FULL_BYTES}, "", id="both have space"),
        pytest.param({"dir": 3 << 20, "shared": FULL_BYTES}, "the disk of {dir} has only 3 MiB free", id="etcd's"),
        pytest.param({"dir": FULL_BYTES, "shared": 0}, "the disk of {shared} has only 0 MiB free", id="that of disks"),
    ],
)
def test_a_disk_that_is_full_is_named(tmp_path: Path, free: dict[str, int], said: str) -> None:
    places = {"dir": tmp_path, "shared": tmp_path / "shared"}
    (tmp_path / "shared-dir").write_text(f"{places['shared']}\n")
    found = describe_full_disk(StackPaths(tmp_path), {places[name]: left for name, left in free.items()}.__getitem__)
    assert found == (f"{said.format(**places)}: delete files there" if said else "")


def test_a_stack_that_never_started_has_no_full_disk(tmp_path: Path) -> None:
    assert describe_full_disk(StackPaths(tmp_path / "none")) == ""


def test_too_few_processes_are_reported_before_services_are_aborted() -> None:
    check_processes(MINIMUM_PROCESSES)
    with pytest.raises(StackError, match="`ulimit -u` is 40"):
        check_processes(40)
