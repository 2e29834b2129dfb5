"""The certificates and CA bundles that the cluster contains."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from service.certificates import KeyPair, PublishedCA


@dataclass(frozen=True)
class CertificatePolicy:
    hosts: tuple[str, ...]
    """DNS names of the servers."""
    certificate_life: timedelta = timedelta(days=7)
    ca_life: timedelta = timedelta(days=365)
    propagation: timedelta = timedelta(seconds=30)
    """Time until every API server uses a new CA bundle."""


@dataclass(frozen=True)
class CertificateSnapshot:
    """Each resourceVersion belongs to the object that a step would write; None if the object does not exist."""

    cas: tuple[PublishedCA, ...] = ()
    """The oldest first."""
    cas_version: str | None = None
    certificate: KeyPair | None = None
    """None if it is missing or damaged."""
    bundle: tuple[bytes, ...] = ()
    """Certificates that clients of our servers trust: `ca.crt` of the serving Secret."""
    certificate_version: str | None = None
    configurations: tuple[WebhookConfiguration, ...] = ()


@dataclass(frozen=True)
class WebhookConfiguration:
    plural: str
    name: str
    version: str
    bundles: tuple[bytes, ...]
    """The CA bundle of each webhook."""
