from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from poolhouse.service.certificates import (
    KeyPair,
    PublishedCA,
    ca_bundle,
    ca_renewal_due,
    certificate_renewal_due,
    new_ca,
    new_client_certificate,
    new_server_certificate,
    signing_ca,
)
from poolhouse.service.validity import Validity

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SETTLE = timedelta(seconds=30)


def authority(born: datetime = NOW, life: timedelta = 10 * DAY) -> KeyPair:
    return new_ca("test", born, life)


OLD, NEW = authority(NOW), authority(NOW + 6 * DAY)


@pytest.mark.parametrize(
    ("share", "due"),
    [
        pytest.param(0.0, False, id="new"),
        pytest.param(0.59, False, id="before six tenths"),
        pytest.param(0.6, True, id="at six tenths"),
        pytest.param(1.5, True, id="expired"),
    ],
)
def test_renewal_is_due_at_six_tenths_of_the_validity(share: float, due: bool) -> None:
    assert Validity(NOW, NOW + 10 * DAY).renewal_due(NOW + 10 * DAY * share) is due


@pytest.mark.parametrize(
    ("authorities", "now", "expected"),
    [
        pytest.param([PublishedCA(OLD, NOW)], NOW + HOUR, OLD, id="the only one"),
        pytest.param([PublishedCA(OLD, NOW)], NOW, None, id="published just now"),
        pytest.param([PublishedCA(OLD, NOW), PublishedCA(NEW)], NOW + 7 * DAY, OLD, id="the newest is not published"),
        pytest.param(
            [PublishedCA(OLD, NOW), PublishedCA(NEW, NOW + 6 * DAY)],
            NOW + 6 * DAY + SETTLE / 2,
            OLD,
            id="the newest was published just now",
        ),
        pytest.param(
            [PublishedCA(OLD, NOW), PublishedCA(NEW, NOW + 6 * DAY)],
            NOW + 6 * DAY + SETTLE,
            NEW,
            id="the newest that clients have had long enough",
        ),
        pytest.param([PublishedCA(OLD, NOW)], NOW + 11 * DAY, None, id="an expired CA signs nothing"),
        pytest.param(
            [PublishedCA(OLD, NOW), PublishedCA(NEW, NOW)],
            NOW + DAY,
            OLD,
            id="a CA that is not valid yet signs nothing",
        ),
    ],
)
def test_the_newest_ca_that_clients_have_signs(
    authorities: list[PublishedCA], now: datetime, expected: KeyPair | None
) -> None:
    assert signing_ca(authorities, now, SETTLE) == expected


def test_a_new_ca_is_due_when_the_newest_is_due() -> None:
    assert ca_renewal_due([], NOW)
    assert not ca_renewal_due([PublishedCA(OLD, NOW)], NOW + HOUR)
    assert ca_renewal_due([PublishedCA(OLD, NOW)], NOW + 7 * DAY)
    assert not ca_renewal_due([PublishedCA(OLD, NOW), PublishedCA(NEW, NOW)], NOW + 7 * DAY)
    assert ca_renewal_due([PublishedCA(NEW, NOW)], NOW), "one that has not begun is none yet"


@pytest.mark.parametrize(
    ("life", "skew"),
    [
        pytest.param(365 * DAY, HOUR, id="a CA"),
        pytest.param(7 * DAY, HOUR, id="a certificate"),
        pytest.param(HOUR, HOUR / 10, id="a short-lived certificate"),
    ],
)
def test_new_certificates_are_valid_by_clocks_that_are_behind(life: timedelta, skew: timedelta) -> None:
    made = authority(NOW, life)
    for validity in (made.validity, new_server_certificate(made, "webhook", ["localhost"], NOW, life).validity):
        assert validity.is_valid(NOW - skew)
        assert not validity.is_valid(NOW - skew - timedelta(seconds=1))
        assert not validity.is_valid(NOW + life)


def test_a_certificate_is_renewed_when_it_is_due_of_another_ca_or_lacks_a_host() -> None:
    leaf = new_server_certificate(OLD, "webhook", ["localhost", "127.0.0.1"], NOW, DAY)
    assert not certificate_renewal_due(leaf, OLD, ["127.0.0.1"], NOW + HOUR)
    assert certificate_renewal_due(None, OLD, [], NOW)
    assert certificate_renewal_due(leaf, OLD, ["127.0.0.1"], NOW + 23 * HOUR)
    assert certificate_renewal_due(leaf, NEW, ["127.0.0.1"], NOW + HOUR)
    assert certificate_renewal_due(leaf, OLD, ["webhook.svc"], NOW + HOUR)


def test_a_bundle_has_every_ca_that_has_not_expired() -> None:
    assert ca_bundle([OLD, NEW], NOW + DAY) == OLD.certificate + NEW.certificate
    assert ca_bundle([OLD, NEW], NOW + 11 * DAY) == NEW.certificate


def test_two_cas_have_different_names() -> None:
    assert authority(NOW).name != authority(NOW + timedelta(microseconds=1)).name


def test_a_new_pair_can_be_parsed() -> None:
    leaf = new_server_certificate(OLD, "webhook", ["localhost", "127.0.0.1", "::1"], NOW, DAY)
    assert leaf.hosts == {"localhost", "127.0.0.1", "::1"}
    assert leaf.issuer == OLD.name
    assert leaf.validity.end == NOW + DAY
    assert leaf.validity.start < NOW
    assert new_client_certificate(OLD, "proxy", NOW, DAY).name == "CN=proxy"
