"""What talks to a server here does so in virtual time."""

from __future__ import annotations

from tests.runtime.conftest import api, pytest_asyncio_loop_factories, server

__all__ = ["api", "pytest_asyncio_loop_factories", "server"]
