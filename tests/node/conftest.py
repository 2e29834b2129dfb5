from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import cluster, images, machine
from tests.node.layout import Layout, load_layout


@pytest.fixture(scope="session")
def runs_nodes() -> None:
    """Skips the test if nodes are not wanted or not possible."""
    if not machine.wanted():
        pytest.skip("needs nodes: run `make test-node`")
    if reason := machine.why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def nodes(runs_nodes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A cluster of real nodes with the images of Poolhouse. $POOLHOUSE_TEST_NODE_STATE names a cluster that runs
    already."""
    running = os.environ.get(f"{machine.VARIABLE}_STATE")
    state = Path(running) if running else tmp_path_factory.mktemp("nodes")
    layout = load_layout(state) if running else cluster.up(state, nodes=1 if machine.wanted() == "short" else 2)
    try:
        for archive in images.build(print):
            images.load(layout, archive)
        yield layout
    finally:
        if not running:
            cluster.delete(state)


@pytest.fixture(scope="session")
def two_nodes(nodes: Layout) -> Layout:
    if len(nodes.nodes) < 2:
        pytest.skip("needs two nodes: run `make test-node`")
    return nodes
