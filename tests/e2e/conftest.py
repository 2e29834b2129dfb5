"""The cluster under test, a namespace for each test, what tests need, and the table of results."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import CRDS, NAMESPACES, VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.conftest import RUNS_GUESTS, stack
from tests.e2e.capabilities import Capabilities, look
from tests.e2e.embedded import provide
from tests.e2e.results import CLUSTER, ROW, Results
from tests.e2e.scope import CLAIMS, POOLS, WARM_POOLS, Scope
from tests.e2e.target import OPTIONS, Target, embedded_patience, read_target
from tests.waiting import until

REMOVAL_SECONDS = 180.0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("end-to-end tests")
    for name, text in OPTIONS.items():
        group.addoption(name, help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs: what a test needs of the cluster, see `Capabilities.missing`")
    config.addinivalue_line("markers", "offline: a test that needs no cluster")
    if hasattr(config, "workerinput"):
        return
    # pytest ends its fixtures after Ctrl-C; it shall do so after SIGTERM, also where a shell ignores Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if table := config.getoption("table", default=None):
        config.pluginmanager.register(Results(Path(table)), "e2e-results")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/e2e/") and item.get_closest_marker("offline") is None:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.libvirt)


@pytest.fixture(scope="package")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    named = read_target(request.config)
    if named is not None:
        yield named
        return
    if not RUNS_GUESTS:
        pytest.skip("needs QEMU and libvirt")
    paths = StackPaths(tmp_path_factory.mktemp("e2e"))
    with stack(paths, "--engine", "qemu", "--guest-agent"), provide(paths, embedded_patience(request.config)) as found:
        yield found


@pytest.fixture(scope="package")
def capabilities(target: Target) -> Capabilities:
    async def read() -> Capabilities:
        async with await connect(target) as api:
            with suppress(NotFound):
                await api.get(CRDS, None, f"{POOLS.plural}.{POOLS.group}")
                return await look(api, target)
        pytest.exit("Poolhouse is not installed on this cluster: see docs/install.md", returncode=4)

    return asyncio.run(read())


async def connect(target: Target) -> Api:
    return await Api.connect(target.kubeconfig, context=target.context, user_agent="e2e", timeout_seconds=60)


@pytest.fixture(autouse=True)
def needed(request: pytest.FixtureRequest, record_property: Callable[[str, Any], None]) -> None:
    """Skips a test that the cluster cannot run, and gives each test its row in the table."""
    if request.node.get_closest_marker("offline") is not None:
        return
    what = (request.function.__doc__ or request.node.name).strip().splitlines()[0]
    if callspec := getattr(request.node, "callspec", None):
        what += f" ({callspec.id})"
    record_property(ROW, ((request.module.__doc__ or "").split(".")[0].split(":")[0], what))
    capabilities: Capabilities = request.getfixturevalue("capabilities")
    record_property(CLUSTER, str(capabilities))
    for mark in request.node.iter_markers("needs"):
        if reason := capabilities.missing(mark.kwargs):
            pytest.skip(reason)


@pytest_asyncio.fixture
async def scope(target: Target) -> AsyncIterator[Scope]:
    async with await connect(target) as api:
        found = Scope(api, f"poolhouse-e2e-{uuid4().hex[:8]}", target)
        await api.create(NAMESPACES, {"metadata": {"name": found.namespace, "labels": {meta.PART_OF: meta.POOLHOUSE}}})
        try:
            yield found
        finally:
            await remove(found)


async def remove(scope: Scope) -> None:
    """Deletes the namespace, and waits until its guests are gone, so that the next test has their capacity. Kubernetes
    then removes what is left of it. On an embedded stack, which ends with the tests, the rest stays."""
    with suppress(NotFound, AssertionError, TimeoutError):
        async with asyncio.timeout(REMOVAL_SECONDS):
            for resource in (POOLS, WARM_POOLS, CLAIMS, VMS):
                for name in await scope.objects(resource):
                    with suppress(NotFound):
                        await scope.api.delete(resource, scope.namespace, name)
            await until(lambda: scope.remains(VMS, VMIS), False)
    if scope.target.embedded is None:
        with suppress(NotFound):
            await scope.api.delete(NAMESPACES, None, scope.namespace)
