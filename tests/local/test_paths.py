from __future__ import annotations

import os
from pathlib import Path

from local.paths import StackPaths, abandoned_directories


def test_two_spellings_are_one_stack(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert StackPaths(tmp_path / "link") == StackPaths(tmp_path / "real" / ".." / "real")


def test_sockets_have_short_paths_however_long_the_directory(tmp_path: Path) -> None:
    paths = StackPaths(tmp_path / ("x" * 120) / ("y" * 120))
    paths.prepare(None)
    assert len(str(paths.runtime)) < 20
    assert paths.runtime.is_dir()
    paths.runtime.joinpath("owner").unlink()
    os.rmdir(paths.runtime / "etcd")
    os.rmdir(paths.runtime)


def test_a_copied_directory_does_not_use_the_original_s_places(tmp_path: Path) -> None:
    original = StackPaths(tmp_path / "original")
    original.prepare(None)
    copy = StackPaths(tmp_path / "copy")
    copy.dir.mkdir()
    for record in ("runtime-dir", "shared-dir"):
        (copy.dir / record).write_text((original.dir / record).read_text())
    copy.prepare(None)
    assert copy.runtime != original.runtime
    assert copy.shared != original.shared
    for paths in (original, copy):
        paths.runtime.joinpath("owner").unlink()
        os.rmdir(paths.runtime / "etcd")
        os.rmdir(paths.runtime)


def test_what_a_removed_directory_left_elsewhere_is_found(tmp_path: Path) -> None:
    owner = tmp_path / "stack"
    owner.mkdir()
    for name, owned_by in (
        ("poolhouse-a", owner),
        ("poolhouse-b", tmp_path / "removed"),
        ("other", tmp_path / "removed"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "owner").write_text(f"{owned_by}\n")
    (owner / "shared-dir").write_text(f"{tmp_path / 'poolhouse-a'}\n")
    assert list(abandoned_directories(tmp_path)) == [tmp_path / "poolhouse-b"]


def test_an_owner_that_cannot_be_read_keeps_what_is_its(tmp_path: Path) -> None:
    (tmp_path / "poolhouse-a").mkdir()
    assert list(abandoned_directories(tmp_path)) == []
