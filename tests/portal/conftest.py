"""A stack whose users sign in at a provider, and a portal in each mode, for the tests without real guests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.portal import oidc
from tests.portal.running import Place, place, portal

MODES = ("impersonate", "token")


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("portal"), "simulated") as found:
        yield found


@pytest.fixture(scope="module")
def addresses(stack: Place) -> Iterator[dict[str, str]]:
    with portal(stack, "impersonate") as first, portal(stack, "token") as second:
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
