"""Limits what callers other than the API server may use of the webhook, before their bodies are parsed.

The API server shows a client certificate, if the cluster's AdmissionConfiguration names one. Every other caller of
`/mutate` and `/validate` is unknown: it is refused, or limited in the size and the rate of its requests. Without
certificates nobody can tell who is the API server. Then one address may use only a part of the memory for bodies.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal

from poolhouse.service.callers import ConnectionLimit, address_of, client_certificate, common_names
from poolhouse.service.request_body import MAX_HELD_BYTES, BodyReader, RequestRefused
from poolhouse.service.server import MAX_CONNECTIONS
from webhook.rate_limit import RateLimiter

UnknownCallers = Literal["limit", "refuse"]

QUERY_HELD_BYTES = 8 * 1024 * 1024
"""limit on the bodies of all queries in progress, apart from those of admission"""
UNKNOWN_BODY_BYTES = 256 * 1024
UNKNOWN_HELD_BYTES = 2 * 1024 * 1024
UNKNOWN_IN_FLIGHT = 8
UNKNOWN_CONNECTIONS_PER_ADDRESS = 128


@dataclass(frozen=True)
class ApiServerCertificate:
    """How the webhook recognizes the API server."""

    names: frozenset[str] = frozenset()
    """common names of the certificate; empty for any certificate of the trusted authority"""
    unknown: UnknownCallers = "refuse"

    def matches(self, scope: Any) -> bool:
        certificate = client_certificate(scope)
        return bool(certificate) and (not self.names or bool(self.names & common_names(certificate)))


@dataclass
class AdmissionBodies:
    """Reads the bodies of AdmissionReviews."""

    certificate: ApiServerCertificate | None = None
    """None if API servers have no certificate"""
    bodies: BodyReader = field(default_factory=lambda: BodyReader(held_bytes_per_holder=MAX_HELD_BYTES // 2))
    unknown_bodies: BodyReader = field(
        default_factory=lambda: BodyReader(held_bytes=UNKNOWN_HELD_BYTES, max_body_bytes=UNKNOWN_BODY_BYTES)
    )
    rate_limiter: RateLimiter = field(default_factory=lambda: RateLimiter(per_second=100, burst=200))
    """of unknown callers, by address"""
    _unknown_in_flight: int = 0

    @asynccontextmanager
    async def read(self, scope: Any, receive: Any) -> AsyncIterator[bytes]:
        """The body of a request. Raises `RequestRefused`."""
        address = address_of(scope)
        if self.certificate is None:
            async with self.bodies.raw(scope, receive, address) as body:
                yield body
        elif self.certificate.matches(scope):
            async with self.bodies.raw(scope, receive, "API server") as body:
                yield body
        else:
            self._admit_unknown(address)
            self._unknown_in_flight += 1
            try:
                async with self.unknown_bodies.raw(scope, receive, address) as body:
                    yield body
            finally:
                self._unknown_in_flight -= 1

    def _admit_unknown(self, address: str) -> None:
        assert self.certificate is not None
        if self.certificate.unknown == "refuse":
            raise RequestRefused(401, "only the API server may call this path, with its client certificate")
        wait = self.rate_limiter.wait_seconds(address, monotonic())
        if not wait and self._unknown_in_flight >= UNKNOWN_IN_FLIGHT:
            wait = 1.0
        if wait:
            raise RequestRefused(429, "too many requests without a client certificate", retry_after_seconds=wait)


def connection_limit(certificate: ApiServerCertificate | None) -> ConnectionLimit:
    """The limit on the connections of callers without a certificate. If API servers have none either, one address may
    have half of all connections: an API server sends at most 600 requests at once."""
    if certificate is None:
        return ConnectionLimit(per_address=MAX_CONNECTIONS // 2, total=MAX_CONNECTIONS)
    return ConnectionLimit(per_address=UNKNOWN_CONNECTIONS_PER_ADDRESS, total=MAX_CONNECTIONS // 2)
