"""A stack that runs Pods, which ends with the last test of this package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from poolhouse.stack.paths import StackPaths
from tests.conftest import stack


@pytest.fixture(scope="package")
def pods_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPaths]:
    """A stack with a virtual node, and Kubernetes' scheduler and controllers of Pods."""
    paths = StackPaths(tmp_path_factory.mktemp("virtual-node"))
    with stack(paths, "--engine", "simulated", "--virtual-node", "--without", "defaulter"):
        yield paths
