"""The parts that keep certificates, put together."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from controllers.certificates.controller import Certificates
from controllers.certificates.state import Terms
from controllers.shared.component import Component
from runtime.api import Api

HOSTS = "POOLHOUSE_CERTIFICATE_HOSTS"
LEAF_HOURS = "POOLHOUSE_CERTIFICATE_HOURS"
AUTHORITY_HOURS = "POOLHOUSE_AUTHORITY_HOURS"


def build(api: Api, namespace: str, terms: Terms) -> Component:
    return Component("certificates", (), Certificates(api, namespace, terms, api.now).run)


def terms(environment: Mapping[str, str]) -> Terms | None:
    """POOLHOUSE_CERTIFICATE_HOSTS, separated by commas: whom to keep certificates for; without it, nobody."""
    hosts = tuple(host.strip() for host in environment.get(HOSTS, "").split(",") if host.strip())
    if not hosts:
        return None
    leaf, authority = _hours(environment, LEAF_HOURS, 7 * 24), _hours(environment, AUTHORITY_HOURS, 365 * 24)
    if authority < 2 * leaf:
        raise ValueError(f"{AUTHORITY_HOURS}: must be at least twice {LEAF_HOURS}")
    return Terms(hosts, leaf, authority)


def _hours(environment: Mapping[str, str], name: str, default: int) -> timedelta:
    text = environment.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{name}: must be a whole number of hours, at least 1")
    return timedelta(hours=int(text))
