"""When an X.509 certificate is valid."""

import re
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509

PEM_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)

RENEW_AT = 0.6
"""fraction of its life after which a certificate is renewed; the rest is time to repair a failed renewal"""


@dataclass(frozen=True)
class Validity:
    start: datetime
    end: datetime

    def expired(self, now: datetime) -> bool:
        return now >= self.end

    def is_valid(self, now: datetime) -> bool:
        return self.start <= now < self.end

    def renewal_due(self, now: datetime) -> bool:
        return now >= self.start + (self.end - self.start) * RENEW_AT


def read_validity(pem: bytes) -> Validity:
    """Returns the validity of the first certificate (RFC 5280, 4.1). ValueError: there is none, or it is malformed."""
    block = PEM_CERTIFICATE.search(pem)
    if block is None:
        raise ValueError("it contains no certificate in PEM")
    try:
        certificate = x509.load_pem_x509_certificate(block[0])
    except ValueError as error:
        raise ValueError(f"its first certificate cannot be parsed: {error}") from None
    return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)
