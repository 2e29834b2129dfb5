"""When an X.509 certificate is valid.

The services that only serve a certificate read it here, because the import of `cryptography` takes 9 MB of memory.
"""

import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime

PEM_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)

RENEW_AT = 0.6
"""fraction of its life after which a certificate is renewed; the rest is time to repair a failed renewal"""

VERSION_TAG, UTC_TIME_TAG = 0xA0, 0x17


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
        ((_, certificate),) = _elements(ssl.PEM_cert_to_DER_cert(block[0].decode()))
        fields = _elements(_elements(certificate)[0][1])
        # [version], serialNumber, signature, issuer, validity: version 1 is left out
        validity = fields[4 if fields[0][0] == VERSION_TAG else 3][1]
        start, end = (_time(tag, content.decode()) for tag, content in _elements(validity))
    except (ValueError, IndexError) as error:
        raise ValueError(f"its first certificate cannot be parsed: {error}") from None
    return Validity(start, end)


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """The tags and contents of elements in DER that follow each other (X.690, 8.1)."""
    found, at = [], 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:  # the length of the length
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        if at + length > len(der):
            raise ValueError("it is truncated")
        found.append((tag, der[at : at + length]))
        at += length
    return found


def _time(tag: int, text: str) -> datetime:
    """UTCTime has years from 1950 to 2049 in two digits, GeneralizedTime has four (RFC 5280, 4.1.2.5)."""
    century = "" if tag != UTC_TIME_TAG else "19" if text >= "50" else "20"
    return datetime.strptime(century + text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
