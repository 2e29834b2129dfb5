"""Makes X.509 certificates and decides when to renew them. The decision is a pure function of `now`.

Every client must have the CA of every certificate in its bundle. A new CA is therefore first published beside the old
CA. It signs certificates once every client has it. The old CA stays in the bundle until it expires.
"""

import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from poolhouse.service.validity import PEM_CERTIFICATE, Validity, read_validity

BACKDATE = 0.1
"""fraction of its life by which notBefore is earlier than now, for clocks that are slow"""
MAX_BACKDATE = timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key in PEM."""

    certificate: bytes
    key: bytes

    @property
    def validity(self) -> Validity:
        return read_validity(self.certificate)

    @property
    def name(self) -> str:
        """The subject of the certificate. The subject of a CA is unique."""
        return x509.load_pem_x509_certificate(self.certificate).subject.rfc4514_string()

    @property
    def issuer(self) -> str:
        return x509.load_pem_x509_certificate(self.certificate).issuer.rfc4514_string()

    @property
    def serial(self) -> str:
        return f"{x509.load_pem_x509_certificate(self.certificate).serial_number:x}"

    @property
    def is_complete(self) -> bool:
        """Whether certificate and key can be parsed and belong together."""
        try:
            certified = x509.load_pem_x509_certificate(self.certificate).public_key()
            return certified == serialization.load_pem_private_key(self.key, None).public_key()
        except (ValueError, TypeError):
            return False

    def is_trusted_by(self, bundle: bytes) -> bool:
        """Whether a client with this bundle trusts the certificate."""
        leaf = x509.load_pem_x509_certificate(self.certificate)
        return any(_signed(leaf, x509.load_pem_x509_certificate(authority)) for authority in split_pem(bundle))

    @property
    def hosts(self) -> frozenset[str]:
        parsed = x509.load_pem_x509_certificate(self.certificate)
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
        return frozenset(addresses | set(names.get_values_for_type(x509.DNSName)))


@dataclass(frozen=True)
class PublishedCA:
    """A CA, and the time since which every client has the CA in its bundle."""

    pair: KeyPair
    published: datetime | None = None


def ca_renewal_due(authorities: Sequence[PublishedCA], now: datetime) -> bool:
    """Whether a new CA is needed. The newest CA is the last. A CA that is not valid yet does not count."""
    holding = [trusted.pair.validity for trusted in authorities if trusted.pair.validity.is_valid(now)]
    return not holding or holding[-1].renewal_due(now)


def signing_ca(authorities: Sequence[PublishedCA], now: datetime, settle: timedelta) -> KeyPair | None:
    """The newest CA that every client has had for the time `settle`; None if no CA is that old."""
    settled = [
        trusted.pair
        for trusted in authorities
        if trusted.published is not None and now >= trusted.published + settle and trusted.pair.validity.is_valid(now)
    ]
    return settled[-1] if settled else None


def certificate_renewal_due(leaf: KeyPair | None, authority: KeyPair, hosts: Sequence[str], now: datetime) -> bool:
    """Whether the certificate is missing, due for renewal, signed by another CA, or lacks a host."""
    return (
        leaf is None or leaf.validity.renewal_due(now) or leaf.issuer != authority.name or not set(hosts) <= leaf.hosts
    )


def ca_bundle(authorities: Sequence[KeyPair], now: datetime) -> bytes:
    """The bundle for clients: every CA that has not expired."""
    return join_pem([pair.certificate for pair in authorities if not pair.validity.expired(now)])


def join_pem(certificates: Sequence[bytes]) -> bytes:
    return b"".join(certificates)


def split_pem(bundle: bytes) -> tuple[bytes, ...]:
    """The certificates of a bundle in canonical PEM. Blocks that cannot be parsed are left out."""
    found = []
    for block in PEM_CERTIFICATE.findall(bundle):
        with suppress(ValueError):
            found.append(x509.load_pem_x509_certificate(block).public_bytes(serialization.Encoding.PEM))
    return tuple(found)


def _signed(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def new_ca(name: str, now: datetime, life: timedelta) -> KeyPair:
    """Creates a CA. Its name contains the time, because clients distinguish CAs by their names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"{name} {now.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}")
    builder = _builder(subject, subject, key, now, life)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def new_server_certificate(
    authority: KeyPair, name: str, hosts: Sequence[str], now: datetime, life: timedelta
) -> KeyPair:
    """Creates a server certificate. `hosts` are DNS names and IP addresses."""
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    return _new_leaf(authority, _name(name), ExtendedKeyUsageOID.SERVER_AUTH, now, life, names)


def new_client_certificate(authority: KeyPair, name: str, now: datetime, life: timedelta) -> KeyPair:
    return _new_leaf(authority, _name(name), ExtendedKeyUsageOID.CLIENT_AUTH, now, life, None)


def _new_leaf(
    authority: KeyPair,
    subject: x509.Name,
    purpose: x509.ObjectIdentifier,
    now: datetime,
    life: timedelta,
    names: x509.SubjectAlternativeName | None,
) -> KeyPair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signing = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(subject, issuer.subject, key, now, life)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return _pair(builder.sign(signing, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - min(life * BACKDATE, MAX_BACKDATE))
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
