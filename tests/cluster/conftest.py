"""A control plane, and a namespace of its own for every test that wants one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from poolhouse.stack.paths import StackPaths
from tests.cluster.pooling import Place, namespace
from tests.conftest import bare_control_plane


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
