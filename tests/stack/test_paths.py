from __future__ import annotations

import os
import shutil
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest

from poolhouse.stack.components import StackError
from poolhouse.stack.paths import StackPaths, abandoned_directories


def test_paths_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert StackPaths(tmp_path / "link") == StackPaths(tmp_path / "real" / ".." / "real")


def test_sockets_have_short_paths_in_a_long_directory(tmp_path: Path) -> None:
    paths = StackPaths(tmp_path / ("x" * 120) / ("y" * 120))
    paths.prepare(None)
    assert len(str(paths.runtime)) < 20
    assert paths.runtime.is_dir()
    paths.runtime.joinpath("owner").unlink()
    os.rmdir(paths.runtime / "etcd")
    os.rmdir(paths.runtime)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_logs_are_private(tmp_path: Path) -> None:
    paths = StackPaths(tmp_path / "new" / "stack")
    umask = os.umask(0)
    try:
        paths.create()
    finally:
        os.umask(umask)
    assert mode(paths.logs) == 0o700
    assert mode(paths.dir) & 0o066 == 0, "others cannot list it either"


def test_existing_logs_become_private_in_a_directory_that_stays_as_it_is(tmp_path: Path) -> None:
    paths = StackPaths(tmp_path)
    tmp_path.chmod(0o755)
    paths.logs.mkdir(mode=0o755)
    paths.create()
    assert (mode(paths.logs), mode(tmp_path)) == (0o700, 0o755)


def test_a_copied_directory_gets_its_own_runtime_and_shared_directories(tmp_path: Path) -> None:
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


def test_directories_of_deleted_stacks_are_abandoned(tmp_path: Path) -> None:
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


def test_a_directory_with_an_unreadable_owner_is_not_abandoned(tmp_path: Path) -> None:
    (tmp_path / "poolhouse-a").mkdir()
    assert list(abandoned_directories(tmp_path)) == []


def test_a_directory_that_another_stack_deletes_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned = tmp_path / "poolhouse-a"
    abandoned.mkdir()
    (abandoned / "owner").write_text(f"{tmp_path / 'removed'}\n")
    stat = Path.stat

    def deleted_first(path: Path, **options: bool) -> os.stat_result:
        if path == abandoned:
            shutil.rmtree(abandoned)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", deleted_first)
    assert list(abandoned_directories(tmp_path)) == []
    assert not abandoned.exists()


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        pytest.param("Jörg's stack, at 100% #1", False, id="what others quote"),
        pytest.param("a:b", True, id="KUBECONFIG would be two paths"),
        pytest.param("a\nb", True, id="a line feed"),
        pytest.param("a\udcff", True, id="a byte of no character"),
    ],
)
def test_a_path_that_no_kubeconfig_can_have_is_refused(tmp_path: Path, name: str, refused: bool) -> None:
    with pytest.raises(StackError, match="use another --dir") if refused else nullcontext():
        StackPaths(tmp_path / name).check_name()


def test_a_directory_of_sockets_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    paths = StackPaths(tmp_path / "stack", sockets := tmp_path / "sockets")
    with pytest.raises(StackError, match=f"^{sockets} cannot hold files of a stack: No such file or directory; "):
        paths.prepare(None)
    assert not (paths.dir / "runtime-dir").exists()
