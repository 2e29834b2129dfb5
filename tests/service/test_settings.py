"""Settings of a service come from environment variables; a bad value is named together with what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BeforeValidator, ValidationError

from poolhouse.service.settings import (
    Address,
    EnvironmentSettings,
    IdentitySettings,
    ListenAddress,
    ServiceSettings,
    listen_setting,
    reference,
    setting,
)


class Settings(ServiceSettings):
    listen: ListenAddress = listen_setting("127.0.0.1:8080")
    burst: int = setting("POOLHOUSE_BURST", 250, "VMs that are created at once.", ge=1)
    deadline_seconds: float = setting("POOLHOUSE_DEADLINE", 2, "Deadline.", unit="seconds", gt=0, le=300)
    election: bool = setting("POOLHOUSE_ELECTION", True, "Whether a leader is elected.")
    region: str = setting("POOLHOUSE_REGION", "", "Region.", pattern="^[a-z]*$")
    hosts: Annotated[tuple[str, ...], BeforeValidator(lambda text: text.split(",") if text else ())] = setting(
        "POOLHOUSE_HOSTS", (), "Hosts."
    )


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, ("127.0.0.1", 8080), id="the default"),
        pytest.param({"POOLHOUSE_LISTEN": "0.0.0.0:9000"}, ("0.0.0.0", 9000), id="an address"),
        pytest.param({"POOLHOUSE_LISTEN": "[::]:8443"}, ("::", 8443), id="an IPv6 host is in brackets"),
    ],
)
def test_an_address(environment: Mapping[str, str], expected: tuple[str, int]) -> None:
    settings = Settings.read(environment)
    assert settings.listen == Address(*expected)
    assert (settings.host, settings.port) == expected


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("POOLHOUSE_LISTEN", "8443:", "HOST:PORT"),
        ("POOLHOUSE_LISTEN", "127.0.0.1:http", "HOST:PORT"),
        ("POOLHOUSE_LISTEN", "127.0.0.1:70000", "HOST:PORT"),
        ("POOLHOUSE_LISTEN", "8443", "HOST:PORT"),
        ("POOLHOUSE_LOG_FORMAT", "xml", "text or json"),
        ("POOLHOUSE_LOG_LEVEL", "loud", "DEBUG, INFO, WARNING, ERROR or CRITICAL"),
        ("POOLHOUSE_BURST", "0", "a whole number, at least 1"),
        ("POOLHOUSE_BURST", "1.5", "a whole number, at least 1"),
        ("POOLHOUSE_DEADLINE", "301", "a number, greater than 0 and at most 300"),
        ("POOLHOUSE_ELECTION", "maybe", "true or false"),
        ("POOLHOUSE_REGION", "US", r"text that matches `\^\[a-z\]\*\$`"),
        ("POOLHOUSE_TLS_SECRET", "tls", "POOLHOUSE_TLS_DIR is required"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(variable: str, value: str, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"{variable}: .*{allowed}"):
        Settings.read({variable: value})


def test_the_error_of_a_missing_setting_shows_no_other_setting() -> None:
    class Required(EnvironmentSettings):
        address: str = setting("POOLHOUSE_ADDRESS", ..., "An address.")
        token: str = setting("POOLHOUSE_TOKEN", "", "A secret.")

    with pytest.raises(ValueError, match=r"^POOLHOUSE_ADDRESS: Required value: must be text$"):
        Required.read({"POOLHOUSE_TOKEN": "secret"})


def test_every_bad_variable_is_named() -> None:
    with pytest.raises(ValueError, match=r"POOLHOUSE_LOG_FORMAT: .*; POOLHOUSE_BURST: "):
        Settings.read({"POOLHOUSE_BURST": "x", "POOLHOUSE_LOG_FORMAT": "xml"})


def test_values_of_other_types() -> None:
    settings = Settings.read(
        {
            "POOLHOUSE_TLS_DIR": "/tls",
            "POOLHOUSE_TLS_SECRET": "serving",
            "POOLHOUSE_LOG_FORMAT": "json",
            "POOLHOUSE_LOG_LEVEL": "debug",
            "POOLHOUSE_HOSTS": "a,b",
        }
    )
    assert (settings.tls, settings.log_format, settings.log_level) == (Path("/tls"), "json", "DEBUG")
    assert (settings.tls_secret, settings.hosts) == ("serving", ("a", "b"))


def test_an_empty_variable_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLHOUSE_BURST", "7")  # of the process, not of the environment that is read
    settings = Settings.read({"POOLHOUSE_TLS_DIR": "", "POOLHOUSE_LOG_LEVEL": "", "POOLHOUSE_BURST": ""})
    assert (settings.tls, settings.log_format, settings.log_level) == (None, "text", "INFO")
    assert (settings.burst, settings.namespace) == (250, "poolhouse-system")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings.read({}).burst = 3


def test_the_reference_describes_every_setting() -> None:
    rows = {row.variable: row for row in reference(Settings)}
    assert rows["POOLHOUSE_LISTEN"].default == "127.0.0.1:8080"
    assert (rows["POOLHOUSE_ELECTION"].allowed, rows["POOLHOUSE_ELECTION"].default) == ("true or false", "true")
    deadline = rows["POOLHOUSE_DEADLINE"]
    assert (deadline.allowed, deadline.unit) == ("a number, greater than 0 and at most 300", "seconds")
    assert all(row.description for row in rows.values())


def test_the_reference_names_required_settings() -> None:
    class WithRequired(Settings):
        issuer: str = setting("POOLHOUSE_ISSUER", ..., "Issuer.")

    rows = {row.variable: (row.required, row.default) for row in reference(WithRequired)}
    assert rows["POOLHOUSE_ISSUER"] == (True, "")
    assert rows["POOLHOUSE_REGION"] == (False, "")


def test_the_seed_of_the_environment() -> None:
    assert IdentitySettings.read({}).seed == ""
    assert IdentitySettings.read({"POOLHOUSE_IDENTITY_SEED": "berlin"}).seed == "berlin"


def test_the_seed_of_a_file(tmp_path: Path) -> None:
    where = {"POOLHOUSE_IDENTITY_DIR": str(tmp_path)}
    with pytest.raises(ValueError, match="POOLHOUSE_IDENTITY_DIR: the seed cannot be read"):
        IdentitySettings.read(where)
    for text in ("berlin", "berlin\n"):
        (tmp_path / "seed").write_text(text)
        assert IdentitySettings.read(where).seed == "berlin"
    (tmp_path / "seed").write_text("")
    assert IdentitySettings.read(where).seed == ""
    with pytest.raises(ValueError, match="POOLHOUSE_IDENTITY_SEED: must be empty"):
        IdentitySettings.read({**where, "POOLHOUSE_IDENTITY_SEED": "x"})
