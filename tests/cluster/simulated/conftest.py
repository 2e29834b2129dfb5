"""An API server with simulated guests, which ends with the last test of this package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from poolhouse.stack.paths import StackPaths
from tests.cluster.claiming import Counter, counter
from tests.cluster.pooling import Place, namespace
from tests.conftest import stack

ALONE = ("--without", "webhook", "--without", "defaulter", "--without", "controllers")


@pytest.fixture(scope="package")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPaths]:
    """An API server and the simulated engine. The tests of this package that a worker runs share them."""
    paths = StackPaths(tmp_path_factory.mktemp("simulated"))
    with stack(paths, "--engine", "simulated", *ALONE):
        yield paths


@pytest_asyncio.fixture
async def guests(simulated: StackPaths) -> AsyncIterator[Place]:
    """A namespace of an API server whose VMs the simulated engine runs."""
    async with namespace(simulated.kubeconfig) as found:
        yield found


@pytest.fixture
def ours(simulated: StackPaths) -> Path:
    """The kubeconfig of the controllers' ServiceAccount, with its rights only."""
    return simulated.kubeconfig_of("controllers")


@pytest_asyncio.fixture
async def desk(simulated: StackPaths) -> AsyncIterator[Counter]:
    async with counter(simulated.kubeconfig) as found:
        yield found
