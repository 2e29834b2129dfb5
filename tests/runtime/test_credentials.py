"""Which proxy the services and commands use for the API server."""

from __future__ import annotations

import pytest

from poolhouse.runtime.credentials import proxy_from_environment

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        pytest.param("https://cluster.example:6443", PROXY, id="a cluster elsewhere"),
        pytest.param("https://[2001:db8::1]:6443/prefix", PROXY, id="an address of IPv6"),
        pytest.param("http://cluster.example", None, id="a scheme without a proxy"),
        pytest.param("https://kept.example:6443", None, id="no_proxy names it"),
        pytest.param("https://127.0.0.1:6443", None, id="a stack on this machine"),
        pytest.param("https://[::1]:6443", None, id="a stack on this machine, with IPv6"),
        pytest.param("https://localhost:6443", None, id="a name of this machine"),
    ],
)
def test_the_proxy_of_an_api_server(server: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("no_proxy", "kept.example")
    monkeypatch.delenv("http_proxy", raising=False)
    assert proxy_from_environment(server) == proxy
