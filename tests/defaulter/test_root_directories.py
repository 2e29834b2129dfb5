from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from defaulter.root_directories import RootDirectories, reachable
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[RootDirectories]:
    """If pytest's path is too long for a socket, the base is elsewhere, and pytest does not remove it."""
    made = RootDirectories(tmp_path / "s", None, None)
    yield made
    made.remove()


def test_a_worker_gets_an_empty_directory(roots: RootDirectories) -> None:
    (roots.make(0) / "leftover").write_text("x")
    assert not (roots.make(0) / "leftover").exists()


def test_capabilities_are_copied_to_the_next_worker(roots: RootDirectories) -> None:
    known = roots.make(0) / "cache/qemu/capabilities" / "abc.xml"
    known.write_text("<qemuCaps/>")
    roots.learn(0)
    assert (roots.make(1) / "cache/qemu/capabilities" / "abc.xml").read_text() == "<qemuCaps/>"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("long" * 20, id="its path is too long for a socket"),
        pytest.param("a,b", id="its path ends at a comma in QEMU's options"),
    ],
)
def test_a_base_that_libvirt_cannot_use_is_replaced(tmp_path: Path, name: str) -> None:
    roots = RootDirectories(tmp_path / name, None, None)
    assert len(str(roots.base)) < 40
    roots.remove()
    assert not roots.base.exists()


def test_a_base_that_its_user_cannot_reach_is_replaced(tmp_path: Path) -> None:
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)
    if os.geteuid() != 0:
        pytest.skip("only root runs workers as someone else")
    assert not reachable(closed / "state", 65534)
    roots = RootDirectories(closed / "state", 65534, 65534)
    assert closed not in roots.base.parents
    roots.remove()


def test_only_the_emulators_of_a_worker_are_killed(roots: RootDirectories) -> None:
    root = roots.make(0)
    mine = subprocess.Popen(["sh", "-c", "sleep 60; :", f"{root}/lib/qemu/x"])
    other = subprocess.Popen(["sh", "-c", "sleep 60; :", f"{roots.base}/w00/x"])
    try:
        roots.end_strays(0)
        assert mine.wait(PATIENCE_SECONDS) != 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_directories_are_in_memory_if_nothing_else_is_asked_for() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("this machine has no directory in memory")
    roots = RootDirectories(None, None, None)
    assert roots.base.parent == Path("/dev/shm")
    roots.remove()
    assert not roots.base.exists()
