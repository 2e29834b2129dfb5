"""A namespace of its own for every test that wants one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from tests.cluster.pooling import Place, namespace


@pytest_asyncio.fixture
async def place(control_plane: Any) -> AsyncIterator[Place]:
    async with namespace(control_plane.kubeconfig) as found:
        yield found
