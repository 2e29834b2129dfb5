from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from poolhouse.runtime.api import Api
from tests.runtime.faulty_server import Server
from tests.virtual_loop import VirtualLoop


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests of this room run in virtual time, so none of them waits."""
    return {"virtual": VirtualLoop}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as server:
        yield server


@pytest.fixture
async def api(server: Server, tmp_path: Path) -> AsyncIterator[Api]:
    async with await server.connect(tmp_path) as api:
        yield api
