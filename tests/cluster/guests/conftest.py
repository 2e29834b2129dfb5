"""A stack with QEMU guests, from which each test removes its VMs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.cluster.simulated.test_engine import delete_all, nothing_left
from tests.conftest import RUNS_GUESTS
from tests.portal.running import Place
from tests.waiting import eventually


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/cluster/guests/"):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.libvirt)
            item.add_marker(pytest.mark.skipif(not RUNS_GUESTS, reason="needs QEMU and libvirt"))


@pytest.fixture
def paths(guests_stack: Place) -> StackPaths:
    return guests_stack.paths


@pytest_asyncio.fixture
async def api(paths: StackPaths) -> AsyncIterator[Api]:
    async with await Api.connect(paths.kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        yield api
        await delete_all(api, VMS, VMIS)
        await eventually(lambda: nothing_left(api))
        await eventually(lambda: asyncio.to_thread(lambda: not list(paths.disks.glob("*.qcow2"))))
