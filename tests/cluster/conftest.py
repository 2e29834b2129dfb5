"""A namespace of its own for every test that wants one, and a stack with simulated guests for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from local.paths import StackPaths
from tests.cluster.claiming import Counter, counter
from tests.cluster.pooling import Place, namespace
from tests.conftest import stack

ALONE = ("--without", "webhook", "--without", "defaulter", "--without", "controllers")


@pytest_asyncio.fixture
async def place(control_plane: Any) -> AsyncIterator[Place]:
    async with namespace(control_plane.kubeconfig) as found:
        yield found


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPaths]:
    """An API server and the simulated engine. All tests of a worker share them, as they do `control_plane`."""
    paths = StackPaths(tmp_path_factory.mktemp("simulated"))
    with stack(paths, "--engine", "simulated", *ALONE):
        yield paths


@pytest.fixture
def ours(simulated: StackPaths) -> Path:
    """The kubeconfig of the controllers' ServiceAccount, with its rights only."""
    return simulated.kubeconfig_of("controllers")


@pytest_asyncio.fixture
async def desk(simulated: StackPaths) -> AsyncIterator[Counter]:
    async with counter(simulated.kubeconfig) as found:
        yield found
