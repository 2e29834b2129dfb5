"""Settings of the webhook."""

from __future__ import annotations

from pathlib import Path

import pytest

from webhook.main import Budgets, Settings


def test_settings_of_a_container() -> None:
    settings = Settings.read(
        {
            "POOLHOUSE_LISTEN": "[::]:8443",
            "POOLHOUSE_TLS_DIR": "/tls",
            "POOLHOUSE_DEFAULTER_URL": "http://defaulter",
            "POOLHOUSE_IDENTITY_SEED": "seed",
            "POOLHOUSE_LOG_FORMAT": "json",
        }
    )
    assert (settings.host, settings.port, settings.tls) == ("::", 8443, Path("/tls"))
    assert (settings.defaulter_url, settings.seed, settings.log_format) == ("http://defaulter", "seed", "json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POOLHOUSE_LISTEN", "8443:"),
        ("POOLHOUSE_LISTEN", "127.0.0.1:http"),
        ("POOLHOUSE_LOG_FORMAT", "xml"),
        ("POOLHOUSE_MACS", "random"),
        ("POOLHOUSE_STRICT_DEFAULTING", "true"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        Settings.read({name: value})


def test_strict_defaulting_needs_a_defaulter() -> None:
    found = Settings.read({"POOLHOUSE_STRICT_DEFAULTING": "true", "POOLHOUSE_DEFAULTER_URL": "http://defaulter"})
    assert found.strict_defaulting


def test_budgets_are_below_the_timeouts_of_the_webhook_configurations() -> None:
    assert Budgets().defaulter_seconds < 3
    assert Budgets().checks_seconds < 10
