"""Who sends a request: a client with a certificate, or an unknown caller at an address."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from poolhouse.service.held_counter import HeldCounter

CLIENT_CERTIFICATE = "poolhouse.client-certificate"
"""key of the client certificate in `extensions` of the ASGI scope; the TLS handshake has verified it"""

ABORT = "poolhouse.abort"
"""key of a function in `extensions` of the ASGI scope that ends the connection at once"""


def client_certificate(scope: Mapping[str, Any]) -> Mapping[str, Any]:
    """The client's certificate, as `ssl` describes it; empty without one."""
    return (scope.get("extensions") or {}).get(CLIENT_CERTIFICATE) or {}


def common_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(value for part in certificate.get("subject", ()) for key, value in part if key == "commonName")


def address_of(scope: Mapping[str, Any]) -> str:
    """The IP address of the client. A socket for both IP versions has IPv4 addresses as `::ffff:192.0.2.1`."""
    client = scope.get("client")
    return str(client[0]).removeprefix("::ffff:") if client else "unknown"


@dataclass
class ConnectionLimit:
    """Limits the connections of callers without a certificate, for each address and in total, so that a server always
    has connections for those with one."""

    per_address: int
    total: int
    _open: HeldCounter[str] = field(default_factory=HeldCounter)

    def opened(self, address: str) -> bool:
        """Counts a connection, if the address may open another one."""
        if self._open[address] >= self.per_address or self._open.total() >= self.total:
            return False
        self._open[address] += 1
        return True

    def closed(self, address: str) -> None:
        self._open.release(address)
