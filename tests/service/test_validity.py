from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from poolhouse.service.validity import Validity, read_validity

KEY = ec.generate_private_key(ec.SECP256R1())

VERSION_1 = b"""\
-----BEGIN CERTIFICATE-----
MIIBFjCBvQIUMwsc4boS72MRJ0ngbyjIXaUH6TcwCgYIKoZIzj0EAwIwDjEMMAoG
A1UEAwwDb2xkMB4XDTI2MTEyMzEwMjUyMVoXDTM2MTEyMDEwMjUyMVowDjEMMAoG
A1UEAwwDb2xkMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE39aCyUdvcR6LAjRG
FrJW89m74E9CwyXQCMJM/r2MOIu1cc0vgUsolQhTVpn8vDslRpcxClJwnAjtwXll
5EMqsTAKBggqhkjOPQQDAgNIADBFAiAbO4BPVpOsHG3OajzFUaxztrHic3aiwui0
EPjrHpI54wIhANcopgCENn/E/eT7UNWbE8lQeI8Nr7EGrXMeCcx/pY92
-----END CERTIFICATE-----
"""


def certificate(
    start: datetime = datetime(2026, 1, 1, tzinfo=UTC), end: datetime = datetime(2027, 1, 1, tzinfo=UTC)
) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    builder = x509.CertificateBuilder(subject, subject, KEY.public_key(), 7, start, end)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param("1950-01-01T00:00:00", "1999-12-31T23:59:59", id="years of two digits from 1950"),
        pytest.param("2000-02-29T12:34:56", "2049-12-31T23:59:59", id="years of two digits to 2049"),
        pytest.param("2026-06-01T00:00:00", "2050-01-01T00:00:00", id="a year of four digits"),
        pytest.param("2051-01-01T00:00:00", "9999-12-31T23:59:59", id="no well-defined end"),
    ],
)
def test_the_times_are_those_of_the_certificate(start: str, end: str) -> None:
    expected = Validity(*(datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (start, end)))
    assert read_validity(certificate(expected.start, expected.end)) == expected


@pytest.mark.parametrize(
    ("pem", "start"),
    [
        pytest.param(
            b"Issuer: CN=test\n" + certificate() + certificate(datetime(2020, 1, 1, tzinfo=UTC)),
            "2026-01-01T00:00:00Z",
            id="text and a chain",
        ),
        pytest.param(certificate().replace(b"\n", b"\r\n"), "2026-01-01T00:00:00Z", id="lines of Windows"),
        pytest.param(VERSION_1, "2026-11-23T10:25:21Z", id="version 1"),
    ],
)
def test_the_validity_is_that_of_the_first_certificate(pem: bytes, start: str) -> None:
    assert read_validity(pem).start == datetime.fromisoformat(start)


@pytest.mark.parametrize(
    ("pem", "error"),
    [
        pytest.param(b"", "it contains no certificate in PEM", id="empty"),
        pytest.param(certificate()[:100], "it contains no certificate in PEM", id="a part of the file"),
        pytest.param(
            re.sub(rb"\n[^-]*\n(?=---)", b"\n", certificate(), count=1),
            "its first certificate cannot be parsed",
            id="no content",
        ),
        pytest.param(
            b"-----BEGIN CERTIFICATE-----\nMIIBFjCBvQ==\n-----END CERTIFICATE-----",
            "its first certificate cannot be parsed",
            id="truncated",
        ),
        pytest.param(
            b"-----BEGIN CERTIFICATE-----\nAAAA!\n-----END CERTIFICATE-----",
            "its first certificate cannot be parsed",
            id="not base64",
        ),
    ],
)
def test_text_without_a_certificate_is_refused(pem: bytes, error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        read_validity(pem)
