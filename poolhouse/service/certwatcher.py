"""Reloads TLS files that change while the process runs: the serving certificate and the CA bundle."""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from poolhouse.service.validity import Validity, read_validity

log = logging.getLogger(__name__)

SERVING_INTERVAL_SECONDS = 2.0
BUNDLE_INTERVAL_SECONDS = 10.0


class CertWatcher:
    """Serves the newest complete pair of `tls.crt` and `tls.key` in a directory, and replaces it without a restart.

    Each pair gets its own SSL context. If a new pair were loaded into the context in use, the server could combine a
    new certificate with an old key between the writes of the two files.
    """

    def __init__(
        self,
        directory: Path,
        clients: Path | None = None,
        on_change: Callable[[Validity], None] = lambda validity: None,
    ) -> None:
        """`clients` is the CA of client certificates. A client without a certificate is accepted too."""
        self._on_change = on_change
        self._files = directory / "tls.crt", directory / "tls.key"
        self._clients = clients
        self._loaded: list[bytes] = []
        self._expires = 0.0
        self._last_error = ""
        self._current = self._load()
        self.context = self._load()
        self.context.sni_callback = self._select  # OpenSSL calls it in every handshake, with or without server name

    def renew(self) -> bool:
        """Loads changed files; returns whether a new pair is served. An invalid pair is ignored. A pair that is not
        valid now is ignored until the current pair expires."""
        try:
            if (content := self._read()) == self._loaded:
                return False
            validity, now = read_validity(content[0]), time.time()
            if self._expires > now and validity.start.timestamp() > now:
                raise ValueError(f"it is not valid before {validity.start:%Y-%m-%d %H:%M:%S} UTC")
            if self._expires > now and validity.end.timestamp() <= now:
                raise ValueError(f"it expired at {validity.end:%Y-%m-%d %H:%M:%S} UTC")
            self._current = self._load()
        except (OSError, ValueError) as error:  # SSLError is a subclass of OSError
            if str(error) != self._last_error:
                log.warning("certificate %s: %s; the current certificate stays", self._files[0], error)
            self._last_error = str(error)
            return False
        self._last_error = ""
        log.info("certificate %s: a new certificate is served", self._files[0])
        return True

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(SERVING_INTERVAL_SECONDS)
            self.renew()

    def _select(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        content = self._read()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(*self._files)
        if self._clients is not None:
            context.load_verify_locations(self._clients)
            context.verify_mode = ssl.CERT_OPTIONAL
        validity = read_validity(content[0])
        self._expires = validity.end.timestamp()
        self._on_change(validity)
        self._loaded = content  # from before OpenSSL read the files, so that the next call detects a change since then
        return context

    def _read(self) -> list[bytes]:
        """The content of the files. It shows each change, unlike their times and sizes: a file that is written twice
        within one tick of the kernel's clock has the same time."""
        files = (*self._files, self._clients) if self._clients is not None else self._files
        return [file.read_bytes() for file in files]


class CABundle:
    """An SSL context that trusts the certificates of the file `bundle`, or the CAs of the system until the file exists.
    A CA that was once in the bundle stays trusted while the process runs, until the CA expires."""

    def __init__(self, bundle: Path) -> None:
        self.context = ssl.create_default_context()
        self._bundle = bundle
        self._loaded: bytes | None = None
        self.renew()

    def renew(self) -> bool:
        """Loads the file if it has changed; returns whether it has."""
        try:
            content = self._bundle.read_bytes()
            if content == self._loaded:
                return False
            self.context.load_verify_locations(cadata=content.decode())
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            log.warning("CA bundle %s: %s; the trusted CAs stay", self._bundle, error)
            return False
        self._loaded = content
        return True

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(BUNDLE_INTERVAL_SECONDS)
            self.renew()


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file that only this user may read. A concurrent reader never sees a part of the content."""
    draft = path.with_name(f".{path.name}.new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    draft.replace(path)
