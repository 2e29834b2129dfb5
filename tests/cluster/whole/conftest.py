"""A stack with all services and a virtual node, which ends with the last test of this package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from poolhouse.stack.paths import StackPaths
from tests.conftest import stack

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pool.yaml"


@pytest.fixture(scope="package")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPaths]:
    """A stack with a pool whose VMs run, a virtual node, and Kubernetes' scheduler and controllers of Pods."""
    paths = StackPaths(tmp_path_factory.mktemp("whole"))
    with stack(paths, "--engine", "simulated", "--virtual-node", "--apply", str(EXAMPLE)):
        yield paths
