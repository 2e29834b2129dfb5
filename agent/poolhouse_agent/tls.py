"""TLS of the server: only callers with a certificate of the authority are answered."""

from __future__ import annotations

import logging
from pathlib import Path

import grpc

log = logging.getLogger(__name__)

CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"


def server_credentials(directory: Path) -> grpc.ServerCredentials:
    """The credentials in the directory, which are read again when a file has changed. Exits if a file is missing."""
    source = CredentialFiles(directory)
    first = source.changed()
    if first is None:
        raise SystemExit(f"cannot read {CERTIFICATE}, {KEY} and {AUTHORITY} in {directory}")
    return grpc.dynamic_ssl_server_credentials(first, source.changed, require_client_authentication=True)


class CredentialFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: tuple[bytes, ...] = ()

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """The credentials if they differ from those of the previous call. gRPC asks before each handshake."""
        try:
            content = tuple((self._directory / name).read_bytes() for name in (KEY, CERTIFICATE, AUTHORITY))
        except OSError as error:
            log.error("%s", error)
            return None
        if content == self._known:
            return None
        self._known = content
        key, certificate, authority = content
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)
