from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tests.virtual_loop import VirtualLoop


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests of this room run in virtual time, so none of them waits."""
    return {"virtual": VirtualLoop}
