"""The stack's certificates, as files, kept valid while it runs.

Two authorities. The cluster's signs the API server's own certificate and lives as long as the directory: clients read
it once, when they start. The webhooks' is renewed with everything that it signs: its one client that matters is the
API server, which takes a new bundle at once from what is applied.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from service.certificates import (
    KeyPair,
    PublishedCA,
    ca_bundle,
    ca_renewal_due,
    certificate_renewal_due,
    new_ca,
    new_client_certificate,
    new_server_certificate,
    signing_ca,
)

log = logging.getLogger(__name__)

LOOPBACK = ("localhost", "127.0.0.1", "::1")
CLUSTER_LIFE = timedelta(days=3650)
LEAF_LIFE = timedelta(days=7)
AUTHORITY_LIVES = 4
"""an authority lives as long as this many of the certificates that it signs"""
PROXY = "poolhouse-front-proxy"
"""as which the API server calls the engine's subresources"""


def load_pair(directory: Path, name: str) -> KeyPair | None:
    try:
        return KeyPair((directory / f"{name}.crt").read_bytes(), (directory / f"{name}.key").read_bytes())
    except OSError:
        return None


def store_pair(pair: KeyPair, directory: Path, name: str) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(directory / f"{name}.key", pair.key)
    write_atomically(directory / f"{name}.crt", pair.certificate)


def write_atomically(path: Path, content: bytes) -> None:
    """All of it or nothing, because servers read it at any time."""
    draft = path.with_name(f".{path.name}.new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    draft.replace(path)


def prepare_cluster_certificates(directory: Path, now: datetime) -> KeyPair:
    """The cluster's authority with the API server's certificates, made where they are missing or due."""
    authority = load_pair(directory, "ca")
    if authority is None or authority.validity.renewal_due(now):
        authority = new_ca("poolhouse cluster", now, CLUSTER_LIFE)
        store_pair(authority, directory, "ca")
    apiserver = load_pair(directory, "apiserver")
    # Pods would know the API server by the first address of the Services' range, and some clients ask for that name.
    hosts = (*LOOPBACK, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1")
    if certificate_renewal_due(apiserver, authority, hosts, now):
        store_pair(
            new_server_certificate(authority, "kube-apiserver", hosts, now, CLUSTER_LIFE), directory, "apiserver"
        )
    proxy = load_pair(directory, "proxy")
    if proxy is None or proxy.issuer != authority.name or proxy.validity.renewal_due(now):
        store_pair(new_client_certificate(authority, PROXY, now, CLUSTER_LIFE), directory, "proxy")
    if not (directory / "accounts.key").exists():
        write_atomically(directory / "accounts.key", _new_accounts_key())
    return authority


def _new_accounts_key() -> bytes:
    """What signs ServiceAccount tokens, in the one form of which the API server also takes the public half."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


@dataclass
class CertificateManager:
    """Keeps one certificate for each server in `servers` (name → hosts), in `directory/NAME/tls.crt|tls.key|ca.crt`,
    and `directory/ca.crt`, which verifies all of them and the API server."""

    directory: Path
    servers: Mapping[str, tuple[str, ...]]
    cluster: KeyPair
    leaf_life: timedelta = LEAF_LIFE
    authorities: list[PublishedCA] = field(default_factory=list)

    @property
    def settle(self) -> timedelta:
        """How long an API server may take to learn of a new bundle."""
        return min(timedelta(seconds=30), self.leaf_life / 4)

    @property
    def every_seconds(self) -> float:
        return min(60.0, self.leaf_life.total_seconds() / 40)

    def prepare(self, now: datetime) -> None:
        """Before any server runs: nobody has a bundle yet, so every authority counts as published."""
        pairs = [pair for pair in map(self._load_authority, self._names()) if pair and not pair.validity.expired(now)]
        self.authorities = [PublishedCA(pair, now - self.settle) for pair in pairs]
        if ca_renewal_due(self.authorities, now):
            self._add_authority(now, published=now - self.settle)
        self._write_bundles(now)
        self._renew_leaves(now)

    def bundle(self, now: datetime) -> bytes:
        return ca_bundle([trusted.pair for trusted in self.authorities], now)

    async def tend(self, now: datetime, publish: Callable[[bytes], Awaitable[None]]) -> None:
        """One round: what is due is renewed. `publish` returns when the API server has the bundle."""
        if any(trusted.pair.validity.expired(now) for trusted in self.authorities):
            self._forget(now)
        if ca_renewal_due(self.authorities, now):
            self._add_authority(now, published=None)
        self._renew_leaves(now)  # before anybody is asked who may be away: certificates end all the same
        if any(trusted.published is None for trusted in self.authorities):
            self._write_bundles(now)
            await publish(self.bundle(now))
            self.authorities = [replace(t, published=t.published or now) for t in self.authorities]

    async def keep(self, publish: Callable[[bytes], Awaitable[None]]) -> None:
        """`tend`, for ever. A round that fails is tried again in the next: there is time left by design."""
        while True:
            await asyncio.sleep(self.every_seconds)
            try:
                await self.tend(datetime.now(UTC), publish)
            except Exception:
                log.exception("certificates: this round failed")

    def _renew_leaves(self, now: datetime) -> None:
        authority = signing_ca(self.authorities, now, self.settle)
        if authority is None:
            return
        for name, hosts in self.servers.items():
            wanted = (*LOOPBACK, *hosts)
            if certificate_renewal_due(load_pair(self.directory / name, "tls"), authority, wanted, now):
                store_pair(
                    new_server_certificate(authority, name, wanted, now, self.leaf_life), self.directory / name, "tls"
                )

    def _add_authority(self, now: datetime, published: datetime | None) -> None:
        pair = new_ca("poolhouse webhooks", now, self.leaf_life * AUTHORITY_LIVES)
        number = max((int(name) for name in self._names()), default=0) + 1
        store_pair(pair, self._authorities, str(number))
        self.authorities.append(PublishedCA(pair, published))

    def _forget(self, now: datetime) -> None:
        self.authorities = [trusted for trusted in self.authorities if not trusted.pair.validity.expired(now)]
        for name in self._names():
            pair = self._load_authority(name)
            if pair is None or pair.validity.expired(now):
                for suffix in ("crt", "key"):
                    (self._authorities / f"{name}.{suffix}").unlink(missing_ok=True)
        self._write_bundles(now)

    def _write_bundles(self, now: datetime) -> None:
        everything = self.cluster.certificate + self.bundle(now)
        write_atomically(self.directory / "ca.crt", everything)
        for name in self.servers:
            (self.directory / name).mkdir(mode=0o700, exist_ok=True)
            write_atomically(self.directory / name / "ca.crt", everything)

    @property
    def _authorities(self) -> Path:
        return self.directory / "authorities"

    def _names(self) -> list[str]:
        """In the order in which they were made."""
        return sorted((file.stem for file in self._authorities.glob("[0-9]*.crt")), key=int)

    def _load_authority(self, name: str) -> KeyPair | None:
        return load_pair(self._authorities, name)
