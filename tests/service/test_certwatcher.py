"""A changed certificate is loaded when it is complete and valid."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from poolhouse.service.certwatcher import CertWatcher
from poolhouse.service.validity import Validity, read_validity

HOUR, DAY = datetime.timedelta(hours=1), datetime.timedelta(days=1)


def write_pair(
    directory: Path,
    name: str,
    *,
    with_key: bool = True,
    begins: datetime.timedelta = -HOUR,
    ends: datetime.timedelta = DAY,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .sign(key, hashes.SHA256())
    )
    (directory / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    if with_key:
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (directory / "tls.key").write_bytes(key.private_bytes(*pem))


def test_a_mounted_secret_that_is_replaced_by_its_link_is_loaded(tmp_path: Path) -> None:
    """A kubelet updates a mounted Secret by replacing the one link that its files go through."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_pair(tmp_path / name, name)
    (tmp_path / "data").symlink_to("first")
    for file in ("tls.crt", "tls.key"):
        (tmp_path / file).symlink_to(f"data/{file}")
    certificate = CertWatcher(tmp_path)
    assert not certificate.renew()
    (tmp_path / "new").symlink_to("second")
    (tmp_path / "new").rename(tmp_path / "data")
    assert certificate.renew()
    assert not certificate.renew()


@pytest.mark.parametrize(
    ("ends", "begins", "served"),
    [
        pytest.param(DAY, -HOUR, True, id="valid"),
        pytest.param(DAY, HOUR, False, id="not yet valid, and the current one is"),
        pytest.param(-HOUR / 2, HOUR, True, id="the current one has expired too"),
    ],
)
def test_a_certificate_is_served_from_the_time_it_is_valid(
    ends: datetime.timedelta, begins: datetime.timedelta, served: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_pair(tmp_path, "old", ends=ends)
    certificate = CertWatcher(tmp_path)
    write_pair(tmp_path, "new", begins=begins, ends=2 * DAY)
    assert certificate.renew() is served
    assert not certificate.renew()
    assert caplog.text.count("it is not valid before") == (0 if served else 1), "logged once"


@pytest.mark.parametrize(("ends", "served"), [(DAY, False), (-HOUR / 2, True)], ids=["a valid one", "an expired one"])
def test_an_expired_certificate_does_not_replace(
    ends: datetime.timedelta, served: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A backup or a GitOps tool may restore an old Secret."""
    write_pair(tmp_path, "current", ends=ends)
    certificate = CertWatcher(tmp_path)
    write_pair(tmp_path, "old", begins=-2 * DAY, ends=-HOUR)
    assert certificate.renew() is served
    assert ("it expired at" in caplog.text) is not served


def test_the_validity_of_each_served_certificate_is_reported(tmp_path: Path) -> None:
    write_pair(tmp_path, "old", ends=DAY)
    seen: list[Validity] = []
    certificate = CertWatcher(tmp_path, on_change=seen.append)
    write_pair(tmp_path, "new", ends=2 * DAY)
    certificate.renew()
    assert seen[-1] == read_validity((tmp_path / "tls.crt").read_bytes())
    assert seen[-1].end - seen[0].end >= 0.9 * DAY


def test_the_first_certificate_is_served_even_before_it_is_valid(tmp_path: Path) -> None:
    write_pair(tmp_path, "new", begins=HOUR)
    assert not CertWatcher(tmp_path).renew()


def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    assert CertWatcher(tmp_path).context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_pair_that_does_not_belong_together_is_not_served(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    served = CertWatcher(tmp_path)
    write_pair(tmp_path, "new", with_key=False)
    assert not served.renew(), "the old one stays"
    write_pair(tmp_path, "new")
    assert served.renew()
