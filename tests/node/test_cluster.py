"""A cluster leaves nothing on the machine, and clusters do not disturb each other."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from poolhouse.stack.lock import holder
from tests.node import cluster
from tests.node.cluster import CGROUPS
from tests.node.layout import Layout


@dataclass(frozen=True)
class Machine:
    """What a cluster could leave behind."""

    links: frozenset[str]
    routes: frozenset[str]
    mounts: frozenset[str]
    rules: str
    cgroups: frozenset[str]
    settings: tuple[str, ...]

    @classmethod
    def now(cls) -> Machine:
        settings = ("net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic", "kernel/keys/root_maxkeys")
        return cls(
            frozenset(each.name for each in Path("/sys/class/net").iterdir()),
            frozenset(_output("ip", "route").splitlines()),
            frozenset(Path("/proc/self/mounts").read_text().splitlines()),
            _output("nft", "list", "ruleset"),
            frozenset(str(each) for hierarchy in CGROUPS.iterdir() for each in hierarchy.glob("ph*")),
            tuple(Path("/proc/sys", each).read_text() for each in settings),
        )


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def processes_of(layout: Layout) -> list[str]:
    """The commands of processes that name the cluster's directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode() if entry.name.isdigit() else ""
        except OSError:
            continue
        if str(layout.paths.dir) in command:
            found.append(command)
    return found


@contextmanager
def nothing_left_behind(state: Path) -> Iterator[Layout]:
    """Starts a cluster of one node; the block must end it."""
    before = Machine.now()
    layout = cluster.up(state, nodes=1)
    try:
        during = Machine.now()
        assert layout.link in during.links - before.links
        assert during.mounts == before.mounts
        assert during.settings == before.settings
        assert during.rules == before.rules
        yield layout
    finally:
        cluster.down(state)
    after = Machine.now()
    for field in fields(Machine):
        assert getattr(after, field.name) == getattr(before, field.name), field.name
    assert processes_of(layout) == []


def test_down_leaves_nothing_behind(two_nodes: Layout, tmp_path: Path) -> None:
    with nothing_left_behind(tmp_path):
        pass


def test_down_cleans_up_after_a_killed_supervisor(two_nodes: Layout, tmp_path: Path) -> None:
    with nothing_left_behind(tmp_path) as layout:
        supervisor = holder(layout.paths.lock)
        assert supervisor is not None
        os.kill(supervisor, signal.SIGKILL)
        while holder(layout.paths.lock) is not None:
            time.sleep(0.05)
        assert processes_of(layout), "the cluster keeps running"


def test_a_directory_that_nodes_do_not_see_is_refused() -> None:
    with pytest.raises(cluster.StackError, match="/var/lib/x: nodes do not see this directory"):
        cluster.create_layout(Path("/var/lib/x"), 1)


def test_a_cluster_keeps_its_number_of_nodes(tmp_path: Path) -> None:
    first = cluster.create_layout(tmp_path, 2)
    assert cluster.create_layout(tmp_path, 2) == first
    with pytest.raises(cluster.StackError, match="has a cluster of 2 nodes, not 1"):
        cluster.create_layout(tmp_path, 1)
