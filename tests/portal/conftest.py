"""A stack whose users sign in at a provider, and a portal in each mode, for the tests without real guests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.portal import oidc
from tests.portal.fake_prometheus import FakePrometheus, fake_prometheus
from tests.portal.running import Place, portal

MODES = ("impersonate", "token")


@pytest.fixture(scope="package")
def stack(simulated_stack: Place) -> Place:
    return simulated_stack


@pytest.fixture(scope="package")
def started_prometheus() -> Iterator[FakePrometheus]:
    with fake_prometheus() as found:
        yield found


@pytest.fixture(scope="package")
def addresses(stack: Place, started_prometheus: FakePrometheus) -> Iterator[dict[str, str]]:
    settings = {"POOLHOUSE_PROMETHEUS_URL": started_prometheus.url}
    with portal(stack, "impersonate", **settings) as first, portal(stack, "token", **settings) as second:
        yield {"impersonate": first, "token": second}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def address(addresses: dict[str, str], mode: str) -> str:
    return addresses[mode]


@pytest.fixture
def provider(stack: Place) -> oidc.Provider:
    """The provider, as it is before each test."""
    found = stack.provider
    found.spoil, found.lifetime, found.refreshes = {}, 600, True
    found.asked.clear()
    return found
