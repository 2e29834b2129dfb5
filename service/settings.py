"""Settings that every service has, read from the environment. A bad one is a ValueError that names the variable."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from service.logs import Format

LISTEN = "POOLHOUSE_LISTEN"
TLS = "POOLHOUSE_TLS_DIR"
TLS_SECRET = "POOLHOUSE_TLS_SECRET"
NAMESPACE = "POOLHOUSE_NAMESPACE"
LOG_FORMAT = "POOLHOUSE_LOG_FORMAT"
LOG_LEVEL = "POOLHOUSE_LOG_LEVEL"


def address(environment: Mapping[str, str], default: str) -> tuple[str, int]:
    """`HOST:PORT` to serve on, an IPv6 host in brackets; port 0 is any that is free."""
    host, _, port = environment.get(LISTEN, default).rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or not host:
        raise ValueError(f"{LISTEN}: must be HOST:PORT, such as 127.0.0.1:8080 or [::]:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


def tls(environment: Mapping[str, str]) -> Path | None:
    """The directory of `tls.crt`, `tls.key` and `ca.crt`; None to serve without."""
    given = environment.get(TLS)
    return Path(given) if given else None


def tls_secret(environment: Mapping[str, str]) -> str:
    """The Secret that the files of that directory are fetched from; empty when somebody else puts them there."""
    name = environment.get(TLS_SECRET, "")
    if name and not environment.get(TLS):
        raise ValueError(f"{TLS_SECRET}: {TLS} must say where its files are to be put")
    return name


def namespace(environment: Mapping[str, str], default: str) -> str:
    """Where our own objects are: leases and Secrets."""
    return environment.get(NAMESPACE) or default


def log_format(environment: Mapping[str, str]) -> Format:
    match environment.get(LOG_FORMAT, "text"):
        case "text":
            return "text"
        case "json":
            return "json"
        case _:
            raise ValueError(f"{LOG_FORMAT}: must be text or json")


def log_level(environment: Mapping[str, str]) -> str:
    level = environment.get(LOG_LEVEL, "INFO").upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        raise ValueError(f"{LOG_LEVEL}: must be DEBUG, INFO, WARNING, ERROR or CRITICAL")
    return level
