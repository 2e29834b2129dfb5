"""Certificates over simulated months: the API server's CA bundle must verify what the servers serve."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from poolhouse.service.certificates import KeyPair
from poolhouse.stack.certificates import CertificateManager, load_pair, prepare_cluster_certificates
from tests.waiting import PATIENCE_SECONDS

LIFE = timedelta(hours=1)
HOSTS = {"webhook": ("webhook.example.svc",), "engine": ()}


class Published:
    """An API server that uses a new bundle after a delay."""

    def __init__(self, first: bytes, at: datetime, delay: timedelta) -> None:
        self.history = [(at, first)]
        self.delay = delay
        self.now = at
        self.down = False

    async def publish(self, bundle: bytes) -> None:
        if self.down:
            raise ConnectionError("the API server is away")
        self.history.append((self.now + self.delay, bundle))

    def seen(self) -> bytes:
        return [bundle for since, bundle in self.history if since <= self.now][-1]

    def trusts(self, leaf: KeyPair) -> bool:
        certificate = x509.load_pem_x509_certificate(leaf.certificate)
        if not leaf.validity.start <= self.now < leaf.validity.end:
            return False
        authorities = x509.load_pem_x509_certificates(self.seen())
        return any(
            authority.subject == certificate.issuer
            and authority.not_valid_after_utc > self.now
            and not certificate.verify_directly_issued_by(authority)
            for authority in authorities
        )


def new_manager(directory: Path, now: datetime) -> CertificateManager:
    made = CertificateManager(directory, HOSTS, prepare_cluster_certificates(directory / "cluster", now), LIFE)
    made.prepare(now)
    return made


@pytest.mark.parametrize("outage_hours", [0.0, 0.2, 1.2])
async def test_certificates_are_trusted_throughout_a_long_run(tmp_path: Path, outage_hours: float) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    manager = new_manager(tmp_path, now)
    api = Published(manager.bundle(now), now, delay=manager.settle / 2)
    served: set[bytes] = set()
    authorities: set[str] = set()
    for minute in range(60 * 12):
        api.now = now + timedelta(minutes=minute)
        api.down = outage_hours > 0 and (minute / 60) % 4 < outage_hours
        try:
            await manager.renew(api.now, api.publish)
        except ConnectionError:
            assert api.down
        for name in HOSTS:
            leaf = load_pair(tmp_path / name, "tls")
            assert api.trusts(leaf), f"{name} was distrusted after {minute} minutes"
            served.add(leaf.certificate)
            authorities.add(leaf.issuer)
    assert len(served) > 36
    assert len(authorities) > 3


async def test_the_next_up_uses_valid_certificates_again(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    new_manager(tmp_path, now)
    first = load_pair(tmp_path / "webhook", "tls"), load_pair(tmp_path / "cluster", "apiserver")
    new_manager(tmp_path, now + LIFE / 3)
    assert (load_pair(tmp_path / "webhook", "tls"), load_pair(tmp_path / "cluster", "apiserver")) == first
    later = now + timedelta(days=30)
    manager = new_manager(tmp_path, later)
    leaf = load_pair(tmp_path / "webhook", "tls")
    assert leaf is not None
    assert Published(manager.bundle(later), later, timedelta()).trusts(leaf)


def test_the_ca_file_verifies_every_server_on_loopback(tmp_path: Path) -> None:
    new_manager(tmp_path, datetime.now(UTC))
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    for directory, name in (("webhook", "tls"), ("engine", "tls"), ("cluster", "apiserver")):
        for port in serving(tmp_path / directory, name):
            for host in ("127.0.0.1", "localhost"):
                with (
                    socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection,
                    trust.wrap_socket(connection, server_hostname=host) as secure,
                ):
                    assert secure.version() == "TLSv1.3"


def serving(directory: Path, name: str) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / f"{name}.crt", directory / f"{name}.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                # The first `recv` of a newer OpenSSL sends tickets, when the client may have left already.
                with context.wrap_socket(connection, server_side=True) as secure, contextlib.suppress(OSError):
                    secure.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(PATIENCE_SECONDS)


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    new_manager(tmp_path, datetime.now(UTC))
    keys = list(tmp_path.rglob("*.key"))
    assert len(keys) >= 7
    assert all(key.stat().st_mode & 0o077 == 0 for key in keys)


async def test_a_failed_renewal_is_retried(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    manager = CertificateManager(
        tmp_path, HOSTS, prepare_cluster_certificates(tmp_path / "cluster", now), timedelta(seconds=0.4)
    )
    manager.prepare(now)
    tries = 0
    enough = asyncio.Event()

    async def refuse(bundle: bytes) -> None:
        nonlocal tries
        tries += 1
        if tries > 1:
            enough.set()
        raise ConnectionError

    task = asyncio.create_task(manager.run(refuse))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await enough.wait()
    task.cancel()
