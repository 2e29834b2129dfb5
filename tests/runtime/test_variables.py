"""What every service reads from its environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime import variables

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
    assert variables.address(given, DEFAULT) == expected


@pytest.mark.parametrize(
    ("read", "name", "value"),
    [
        (lambda given: variables.address(given, DEFAULT), "POOLHOUSE_LISTEN", "8443:"),
        (lambda given: variables.address(given, DEFAULT), "POOLHOUSE_LISTEN", "127.0.0.1:http"),
        (lambda given: variables.address(given, DEFAULT), "POOLHOUSE_LISTEN", "127.0.0.1:70000"),
        (lambda given: variables.address(given, DEFAULT), "POOLHOUSE_LISTEN", "8443"),
        (variables.log_format, "POOLHOUSE_LOG_FORMAT", "xml"),
        (variables.log_level, "POOLHOUSE_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_setting_is_named(read: Callable[[Mapping[str, str]], Any], name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        read({name: value})


def test_the_rest() -> None:
    given = {"POOLHOUSE_TLS_DIR": "/tls", "POOLHOUSE_LOG_FORMAT": "json", "POOLHOUSE_LOG_LEVEL": "debug"}
    assert (variables.tls(given), variables.log_format(given), variables.log_level(given)) == (
        Path("/tls"),
        "json",
        "DEBUG",
    )
    assert (variables.tls({}), variables.log_format({}), variables.log_level({})) == (None, "text", "INFO")
