"""Which proxy the services, the commands and the client use for the API server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from poolhouse_client.connection import proxy_of

from poolhouse.runtime.credentials import proxy_from_environment

PROXY = "http://proxy.example:3128"

ProxyOf = Callable[[str], str | None]
every_copy = pytest.mark.parametrize(
    "proxy_of_server",
    [pytest.param(proxy_from_environment, id="services"), pytest.param(partial(proxy_of, given=None), id="client")],
)
"""The client is a distribution of its own, so that it has the rule, too."""


@every_copy
@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        pytest.param("https://cluster.example:6443", PROXY, id="a cluster elsewhere"),
        pytest.param("https://[2001:db8::1]:6443/prefix", PROXY, id="an address of IPv6"),
        pytest.param("http://cluster.example", None, id="a scheme without a proxy"),
        pytest.param("https://kept.example:6443", None, id="no_proxy names it"),
        pytest.param("https://10.96.0.1:443", None, id="no_proxy names its network"),
        pytest.param("https://10.128.0.1:443", PROXY, id="an address outside this network"),
        pytest.param("https://[2001:db8:1::1]:6443", None, id="no_proxy names its network of IPv6"),
        pytest.param("https://127.0.0.1:6443", None, id="a stack on this machine"),
        pytest.param("https://[::1]:6443", None, id="a stack on this machine, with IPv6"),
        pytest.param("https://localhost:6443", None, id="a name of this machine"),
    ],
)
def test_the_proxy_of_an_api_server(
    proxy_of_server: ProxyOf, server: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("no_proxy", "kept.example, 10.96.0.0/12, 2001:db8:1::/48")
    monkeypatch.delenv("http_proxy", raising=False)
    assert proxy_of_server(server) == proxy


@every_copy
def test_a_proxy_without_a_scheme_is_asked_by_http(proxy_of_server: ProxyOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    assert proxy_of_server("https://cluster.example") == PROXY
