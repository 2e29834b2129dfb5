"""Writes the stack's certificates into files, and renews them while the stack runs.

The cluster CA signs the API server's certificate. It is kept as long as the directory exists, because clients read it
only when they start. The webhook CAs are renewed with the certificates that they sign, because the API server accepts a
new CA bundle without a restart.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from poolhouse.service import certificates
from poolhouse.service.certificates import KeyPair, PublishedCA, certificate_renewal_due, new_server_certificate
from poolhouse.service.certwatcher import write_atomically
from poolhouse.stack.engine.resources import FRONT_PROXY

log = logging.getLogger(__name__)

WEBHOOK_CLIENT = "poolhouse-webhook-client"
"""common name and file of the certificate that the API server shows to the webhook"""
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""common name and file of the certificate that the API server shows to kubelets"""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
CLUSTER_LIFE = timedelta(days=3650)
CERTIFICATE_LIFE = timedelta(days=7)
CA_LIVES = 4
"""lifetime of a webhook CA, as a multiple of the lifetime of its certificates"""


def load_pair(directory: Path, name: str) -> KeyPair | None:
    try:
        return KeyPair((directory / f"{name}.crt").read_bytes(), (directory / f"{name}.key").read_bytes())
    except OSError:
        return None


def store_pair(pair: KeyPair, directory: Path, name: str) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(directory / f"{name}.key", pair.key)
    write_atomically(directory / f"{name}.crt", pair.certificate)


def prepare_cluster_certificates(directory: Path, now: datetime, more_hosts: tuple[str, ...] = ()) -> KeyPair:
    """Creates or renews the cluster CA and the API server's certificates. Returns the CA. `more_hosts` are names and
    addresses of the API server besides those of every stack."""
    ca = load_pair(directory, "ca")
    if ca is None or ca.validity.renewal_due(now):
        ca = certificates.new_ca("poolhouse cluster", now, CLUSTER_LIFE)
        store_pair(ca, directory, "ca")
    # Pods connect to the first address of the Service CIDR; some clients use the DNS names of the Service.
    hosts = (*LOOPBACK, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1", *more_hosts)
    if certificate_renewal_due(load_pair(directory, "apiserver"), ca, hosts, now):
        store_pair(new_server_certificate(ca, "kube-apiserver", hosts, now, CLUSTER_LIFE), directory, "apiserver")
    for file, name in (("proxy", FRONT_PROXY), *((each, each) for each in (WEBHOOK_CLIENT, KUBELET_CLIENT))):
        pair = load_pair(directory, file)
        if pair is None or pair.issuer != ca.name or pair.validity.renewal_due(now):
            store_pair(certificates.new_client_certificate(ca, name, now, CLUSTER_LIFE), directory, file)
    if not (directory / "accounts.key").exists():
        # The key for ServiceAccount tokens. The API server reads its public key from this file, in this format only.
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        write_atomically(directory / "accounts.key", key)
    return ca


@dataclass
class CertificateManager:
    """Keeps a certificate for each server (name → hosts) in `directory/NAME/tls.crt|tls.key|ca.crt`. `directory/ca.crt`
    verifies all of them and the API server."""

    directory: Path
    servers: Mapping[str, tuple[str, ...]]
    cluster_ca: KeyPair
    certificate_life: timedelta = CERTIFICATE_LIFE
    cas: list[PublishedCA] = field(default_factory=list)

    @property
    def settle(self) -> timedelta:
        """The time after which every API server uses a new CA bundle."""
        return min(timedelta(seconds=30), self.certificate_life / 4)

    def prepare(self, now: datetime) -> None:
        """Creates or renews the certificates before any server runs. Every CA counts as published, because no server
        has an older bundle yet."""
        pairs = [pair for pair in map(self._load_ca, self._numbers()) if pair and not pair.validity.expired(now)]
        self.cas = [PublishedCA(pair, now - self.settle) for pair in pairs]
        if certificates.ca_renewal_due(self.cas, now):
            self._add_ca(now, published=now - self.settle)
        self._write_bundles(now)
        self._renew_certificates(now)

    def bundle(self, now: datetime) -> bytes:
        return certificates.ca_bundle([ca.pair for ca in self.cas], now)

    async def renew(self, now: datetime, publish: Callable[[bytes], Awaitable[None]]) -> None:
        """Renews the CAs and certificates that are due. `publish` returns when the API server has the bundle."""
        if any(ca.pair.validity.expired(now) for ca in self.cas):
            self._remove_ended_cas(now)
        if certificates.ca_renewal_due(self.cas, now):
            self._add_ca(now, published=None)
        self._renew_certificates(now)  # first, because `publish` fails while the API server is unavailable
        if any(ca.published is None for ca in self.cas):
            self._write_bundles(now)
            await publish(self.bundle(now))
            self.cas = [replace(ca, published=ca.published or now) for ca in self.cas]

    async def run(self, publish: Callable[[bytes], Awaitable[None]]) -> None:
        """Renews certificates in a loop until cancelled. The next round retries a failed renewal."""
        while True:
            await asyncio.sleep(min(60.0, self.certificate_life.total_seconds() / 40))
            try:
                await self.renew(datetime.now(UTC), publish)
            except Exception:
                log.exception("the certificates could not be renewed; the next round retries")

    def _renew_certificates(self, now: datetime) -> None:
        ca = certificates.signing_ca(self.cas, now, self.settle)
        if ca is None:
            return
        for name, server_hosts in self.servers.items():
            hosts = (*LOOPBACK, *server_hosts)
            if certificate_renewal_due(load_pair(self.directory / name, "tls"), ca, hosts, now):
                pair = new_server_certificate(ca, name, hosts, now, self.certificate_life)
                store_pair(pair, self.directory / name, "tls")

    def _add_ca(self, now: datetime, published: datetime | None) -> None:
        pair = certificates.new_ca("poolhouse webhooks", now, self.certificate_life * CA_LIVES)
        store_pair(pair, self._ca_directory, str(max(self._numbers(), default=0) + 1))
        self.cas.append(PublishedCA(pair, published))

    def _remove_ended_cas(self, now: datetime) -> None:
        self.cas = [ca for ca in self.cas if not ca.pair.validity.expired(now)]
        for number in self._numbers():
            pair = self._load_ca(number)
            if pair is None or pair.validity.expired(now):
                for suffix in ("crt", "key"):
                    (self._ca_directory / f"{number}.{suffix}").unlink(missing_ok=True)
        self._write_bundles(now)

    def _write_bundles(self, now: datetime) -> None:
        bundle = self.cluster_ca.certificate + self.bundle(now)
        write_atomically(self.directory / "ca.crt", bundle)
        for name in self.servers:
            (self.directory / name).mkdir(mode=0o700, exist_ok=True)
            write_atomically(self.directory / name / "ca.crt", bundle)

    @property
    def _ca_directory(self) -> Path:
        return self.directory / "authorities"

    def _numbers(self) -> list[int]:
        """The numbers in the CAs' file names, in the order of creation."""
        return sorted(int(file.stem) for file in self._ca_directory.glob("[0-9]*.crt"))

    def _load_ca(self, number: int) -> KeyPair | None:
        return load_pair(self._ca_directory, str(number))
