"""A stack with guests of QEMU, whose users sign in at a provider, and a Chromium, for the console and the portal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.console.browser import chromium
from tests.portal.running import Place


@pytest.fixture(scope="package")
def stack(guests_stack: Place) -> Place:
    return guests_stack


@pytest.fixture(scope="package")
def driver() -> Iterator[webdriver.Chrome]:
    """It accepts the certificate of the portal. The console has none."""
    with chromium("--ignore-certificate-errors") as found:
        yield found
