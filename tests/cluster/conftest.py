"""A namespace of its own for every test that wants one, and a stack with simulated guests for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from poolhouse.stack.paths import StackPaths
from tests.cluster.claiming import Counter, counter
from tests.cluster.pooling import Place, namespace
from tests.conftest import bare_control_plane, stack

ALONE = ("--without", "webhook", "--without", "defaulter", "--without", "controllers")


@pytest.fixture(scope="package")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPaths]:
    """All tests of a worker share it: each uses a namespace of its own and deletes its cluster-wide objects. It ends
    with the last of these tests, because servers at rest take processor time from the tests of other packages."""
    with bare_control_plane(tmp_path_factory.mktemp("control-plane")) as paths:
        yield paths


@pytest_asyncio.fixture
async def place(control_plane: Any) -> AsyncIterator[Place]:
    async with namespace(control_plane.kubeconfig) as found:
        yield found


@pytest.fixture(scope="package")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPaths]:
    """An API server and the simulated engine. All tests of a worker share them, as they do `control_plane`."""
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
