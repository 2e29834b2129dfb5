"""What every service reads from its environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from service import settings

DEFAULT = "127.0.0.1:8080"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, ("127.0.0.1", 8080), id="the default"),
        pytest.param({"POOLHOUSE_LISTEN": "0.0.0.0:9000"}, ("0.0.0.0", 9000), id="an address"),
        pytest.param({"POOLHOUSE_LISTEN": "[::]:8443"}, ("::", 8443), id="IPv6 comes in brackets and is bound without"),
    ],
)
def test_an_address(given: Mapping[str, str], expected: tuple[str, int]) -> None:
    assert settings.address(given, DEFAULT) == expected


@pytest.mark.parametrize(
    ("read", "name", "value"),
    [
        (lambda given: settings.address(given, DEFAULT), "POOLHOUSE_LISTEN", "8443:"),
        (lambda given: settings.address(given, DEFAULT), "POOLHOUSE_LISTEN", "127.0.0.1:http"),
        (lambda given: settings.address(given, DEFAULT), "POOLHOUSE_LISTEN", "127.0.0.1:70000"),
        (lambda given: settings.address(given, DEFAULT), "POOLHOUSE_LISTEN", "8443"),
        (settings.log_format, "POOLHOUSE_LOG_FORMAT", "xml"),
        (settings.log_level, "POOLHOUSE_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_setting_is_named(read: Callable[[Mapping[str, str]], Any], name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        read({name: value})


def test_the_rest() -> None:
    given = {"POOLHOUSE_TLS_DIR": "/tls", "POOLHOUSE_LOG_FORMAT": "json", "POOLHOUSE_LOG_LEVEL": "debug"}
    assert (settings.tls(given), settings.log_format(given), settings.log_level(given)) == (
        Path("/tls"),
        "json",
        "DEBUG",
    )
    assert (settings.tls({}), settings.log_format({}), settings.log_level({})) == (None, "text", "INFO")
