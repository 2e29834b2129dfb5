"""Decides the next step towards valid and trusted certificates.

The order of the steps ensures that no admission request fails. The plan publishes a new CA first. The CA signs
certificates only after every API server has had time to read the bundle. The old CA stays trusted until it expires. The
plan does not wait if there is no usable certificate.
"""

from dataclasses import dataclass
from datetime import datetime

from controllers.certificates.observe import CertificatePolicy, CertificateSnapshot, WebhookConfiguration
from poolhouse.service.certificates import (
    KeyPair,
    PublishedCA,
    ca_renewal_due,
    certificate_renewal_due,
    join_pem,
    signing_ca,
    split_pem,
)
from poolhouse.service.validity import read_validity

NOT_VALID_YET = "it is not valid yet: the clock that created it was ahead, or this clock is behind"


@dataclass(frozen=True)
class AddCA:
    """Creates a CA and keeps the CAs that have not expired."""

    keep: tuple[PublishedCA, ...]
    reason: str


@dataclass(frozen=True)
class PublishBundle:
    configuration: WebhookConfiguration
    bundle: bytes


@dataclass(frozen=True)
class MarkPublished:
    """Records that all webhook configurations contain these CAs. The propagation time starts now."""

    cas: tuple[PublishedCA, ...]


@dataclass(frozen=True)
class IssueCertificate:
    ca: KeyPair
    bundle: bytes
    reason: str


@dataclass(frozen=True)
class UpdateBundle:
    """Keeps the certificate, and writes the bundle for clients of the servers."""

    certificate: KeyPair
    bundle: bytes


Step = AddCA | PublishBundle | MarkPublished | IssueCertificate | UpdateBundle


def plan(snapshot: CertificateSnapshot, now: datetime, policy: CertificatePolicy) -> Step | None:
    cas = tuple(ca for ca in snapshot.cas if not ca.pair.validity.expired(now))
    if ca_renewal_due(cas, now):
        return AddCA(cas, _why_new_ca(cas, now))
    bundle = ca_bundle(snapshot, cas, now)
    for configuration in snapshot.configurations:
        if any(found != bundle for found in configuration.bundles):
            return PublishBundle(configuration, bundle)
    if any(ca.published is None for ca in cas):
        return MarkPublished(cas)
    return _plan_certificate(snapshot, cas, bundle, now, policy)


def ca_bundle(snapshot: CertificateSnapshot, cas: tuple[PublishedCA, ...], now: datetime) -> bytes:
    """The cluster's own CAs, after other unexpired certificates that are trusted now. Servers may still use a
    certificate of another CA, for example after a loss of both Secrets."""
    ours = [ca.pair.certificate for ca in cas]
    published = [
        each
        for configuration in snapshot.configurations
        for bundle in configuration.bundles
        for each in split_pem(bundle)
    ]
    known = dict.fromkeys([*snapshot.bundle, *published])
    others = [each for each in known if each not in ours and not read_validity(each).expired(now)]
    return join_pem([*others, *ours])


def _plan_certificate(
    snapshot: CertificateSnapshot, cas: tuple[PublishedCA, ...], bundle: bytes, now: datetime, policy: CertificatePolicy
) -> Step | None:
    certificate = snapshot.certificate
    signing = signing_ca(cas, now, policy.propagation)
    valid = join_pem([each for each in split_pem(bundle) if read_validity(each).is_valid(now)])
    if certificate is None or not certificate.validity.is_valid(now) or not certificate.is_trusted_by(valid):
        # Requests fail already, so the plan does not wait.
        newest = [ca.pair for ca in cas if ca.pair.validity.is_valid(now)][-1]
        return IssueCertificate(signing or newest, bundle, _why_unusable(certificate, now))
    if signing is not None and certificate_renewal_due(certificate, signing, policy.hosts, now):
        return IssueCertificate(signing, bundle, _why_renewed(certificate, signing, now))
    if snapshot.bundle != split_pem(bundle):
        return UpdateBundle(certificate, bundle)
    return None


def _why_new_ca(cas: tuple[PublishedCA, ...], now: datetime) -> str:
    if not cas:
        return "there is none"
    valid = any(ca.pair.validity.is_valid(now) for ca in cas)
    return "the newest is due for renewal" if valid else NOT_VALID_YET


def _why_unusable(certificate: KeyPair | None, now: datetime) -> str:
    if certificate is None:
        return "there is no usable one"
    if certificate.validity.is_valid(now):
        return "no client trusts the present one"
    return "it has expired" if certificate.validity.expired(now) else NOT_VALID_YET


def _why_renewed(certificate: KeyPair, ca: KeyPair, now: datetime) -> str:
    if certificate.issuer != ca.name:
        return "there is a newer authority"
    return "it is due for renewal" if certificate.validity.renewal_due(now) else "it lacks a host name"
