from __future__ import annotations

from pathlib import Path

import pytest

from poolhouse.service.user_cache import cache_dir, home_dir, writing_cache
from poolhouse.stack.binaries import find_programs
from poolhouse.stack.components import StackError
from poolhouse.stack.engine.qemu.guest_agent import agent_archive
from poolhouse.stack.engine.qemu.guest_packages import GuestImageUnavailable, fill_cache

WHAT_TO_DO = "set XDG_CACHE_HOME to a directory"


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_dir({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/poolhouse")
    assert cache_dir({}) == Path("/home/me/.cache/poolhouse")


def test_a_user_without_a_home_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 4294967294)
    assert home_dir() == Path("/")


def test_an_error_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    expected = rf"No such file or directory \({tmp_path}/a/b\); {WHAT_TO_DO}"
    with pytest.raises(ValueError, match=expected), writing_cache(ValueError):
        (tmp_path / "a" / "b").write_text("")


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that nobody can write, not even root."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return cache_dir()


def test_the_control_plane_needs_a_cache(unwritable: Path) -> None:
    with pytest.raises(StackError, match=WHAT_TO_DO):
        find_programs(lambda text: None)


def test_the_builtin_linux_needs_a_cache(unwritable: Path) -> None:
    with pytest.raises(GuestImageUnavailable, match=WHAT_TO_DO):
        fill_cache(unwritable / "guest")
    with pytest.raises(GuestImageUnavailable, match=WHAT_TO_DO):
        agent_archive(unwritable)
