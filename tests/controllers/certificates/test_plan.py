"""The next step for each state of the certificates, and all steps of a year in order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from controllers.certificates.observe import CertificatePolicy, CertificateSnapshot, WebhookConfiguration
from controllers.certificates.plan import (
    NOT_VALID_YET,
    AddCA,
    IssueCertificate,
    MarkPublished,
    PublishBundle,
    Step,
    UpdateBundle,
    plan,
)
from controllers.certificates.settings import read_policy
from poolhouse.service.certificates import KeyPair, PublishedCA, join_pem, new_ca, new_server_certificate, split_pem

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
POLICY = CertificatePolicy(("webhook.svc",), certificate_life=7 * DAY, ca_life=100 * DAY)
OLD = new_ca("old", NOW, POLICY.ca_life)
NEW = new_ca("new", NOW + 60 * DAY, POLICY.ca_life)
LEAF = new_server_certificate(OLD, "webhook", POLICY.hosts, NOW, POLICY.certificate_life)
AHEAD = NOW + 3 * DAY
EARLY = new_ca("made by a clock that was ahead", AHEAD, POLICY.ca_life)


def leaf(authority: KeyPair, now: datetime) -> KeyPair:
    return new_server_certificate(authority, "webhook", POLICY.hosts, now, POLICY.certificate_life)


def configuration(*bundles: KeyPair) -> WebhookConfiguration:
    return WebhookConfiguration(
        "mutatingwebhookconfigurations", "ours", "1", (join_pem([pair.certificate for pair in bundles]),)
    )


def known(*pairs: KeyPair) -> tuple[bytes, ...]:
    return tuple(pair.certificate for pair in pairs)


RESTING = CertificateSnapshot((PublishedCA(OLD, NOW),), "1", LEAF, known(OLD), "1", (configuration(OLD),))


@pytest.mark.parametrize(
    ("state", "now", "expected"),
    [
        pytest.param(RESTING, NOW + HOUR, None, id="nothing to do"),
        pytest.param(CertificateSnapshot(), NOW, AddCA((), "there is none"), id="no CA"),
        pytest.param(
            replace(RESTING, configurations=(configuration(),)),
            NOW,
            PublishBundle(configuration(), OLD.certificate),
            id="another client overwrote the bundle",
        ),
        pytest.param(
            CertificateSnapshot((PublishedCA(OLD),), "1"),
            NOW,
            MarkPublished((PublishedCA(OLD),)),
            id="all configurations contain the CA",
        ),
        pytest.param(
            CertificateSnapshot((PublishedCA(OLD, NOW),), "1", None, (), None, (configuration(OLD),)),
            NOW,
            IssueCertificate(OLD, OLD.certificate, "there is no usable one"),
            id="without a certificate the plan does not wait",
        ),
        pytest.param(
            RESTING,
            NOW + 5 * DAY,
            IssueCertificate(OLD, OLD.certificate, "it is due for renewal"),
            id="a certificate due for renewal",
        ),
        pytest.param(
            RESTING,
            NOW + 8 * DAY,
            IssueCertificate(OLD, OLD.certificate, "it has expired"),
            id="an expired certificate",
        ),
        pytest.param(
            RESTING,
            NOW + 61 * DAY,
            AddCA((PublishedCA(OLD, NOW),), "the newest is due for renewal"),
            id="a CA due for renewal",
        ),
        pytest.param(
            replace(RESTING, bundle=()),
            NOW,
            UpdateBundle(LEAF, OLD.certificate),
            id="the bundle beside the certificate is missing",
        ),
        pytest.param(
            replace(RESTING, cas=(), cas_version=None),
            NOW,
            AddCA((), "there is none"),
            id="the CA Secret was deleted",
        ),
        pytest.param(
            CertificateSnapshot((PublishedCA(NEW),), "2", LEAF, known(OLD), "1", (configuration(OLD),)),
            NOW + 60 * DAY,
            PublishBundle(configuration(OLD), join_pem(known(OLD, NEW))),
            id="after that, the lost authority stays trusted",
        ),
        pytest.param(
            replace(RESTING, certificate=new_server_certificate(NEW, "webhook", POLICY.hosts, NOW, DAY)),
            NOW,
            IssueCertificate(OLD, OLD.certificate, "no client trusts the present one"),
            id="a certificate of an unknown CA",
        ),
        pytest.param(
            replace(RESTING, certificate=leaf(OLD, NOW + 30 * MINUTE)), NOW, None, id="a clock half an hour ahead"
        ),
        pytest.param(RESTING, NOW - 30 * MINUTE, None, id="a clock half an hour behind"),
        pytest.param(
            replace(RESTING, certificate=leaf(OLD, AHEAD)),
            NOW,
            IssueCertificate(OLD, OLD.certificate, NOT_VALID_YET),
            id="a certificate that is not valid yet",
        ),
        pytest.param(
            CertificateSnapshot(
                (PublishedCA(EARLY, AHEAD),), "1", leaf(EARLY, AHEAD), known(EARLY), "1", (configuration(EARLY),)
            ),
            NOW,
            AddCA((PublishedCA(EARLY, AHEAD),), NOT_VALID_YET),
            id="a CA that is not valid yet does not count",
        ),
        pytest.param(
            CertificateSnapshot(
                (PublishedCA(OLD, NOW), PublishedCA(EARLY, AHEAD)),
                "1",
                LEAF,
                known(OLD, EARLY),
                "1",
                (configuration(OLD, EARLY),),
            ),
            NOW + 2 * DAY,
            None,
            id="beside one that holds, it only waits for its time",
        ),
        pytest.param(
            CertificateSnapshot(
                (PublishedCA(OLD, NOW), PublishedCA(EARLY, NOW)),
                "1",
                leaf(EARLY, NOW),
                known(OLD, EARLY),
                "1",
                (configuration(OLD, EARLY),),
            ),
            NOW,
            IssueCertificate(OLD, join_pem(known(OLD, EARLY)), "no client trusts the present one"),
            id="nobody believes what it has signed until then",
        ),
        pytest.param(replace(RESTING, configurations=()), NOW, None, id="deleted configurations are not restored"),
    ],
)
def test_the_next_step(state: CertificateSnapshot, now: datetime, expected: Step | None) -> None:
    assert plan(state, now, POLICY) == expected


def test_a_new_host_is_signed_for() -> None:
    step = plan(RESTING, NOW + HOUR, replace(POLICY, hosts=("webhook.svc", "controllers.svc")))
    assert step == IssueCertificate(OLD, OLD.certificate, "it lacks a host name")


def test_the_certificate_is_trusted_at_any_time() -> None:
    """A year in steps of half a day; the certificate is checked after each step."""
    state, now, signers = CertificateSnapshot(configurations=(configuration(),)), NOW, set()
    for _ in range(2 * 365):
        while step := plan(state, now, POLICY):
            state = taken(step, state, now)
            if state.certificate is not None:
                assert all(state.certificate.is_trusted_by(b) for where in state.configurations for b in where.bundles)
        assert not state.certificate.validity.expired(now)
        signers.add(state.certificate.issuer)
        assert len(state.cas) <= 2
        now += DAY / 2
    assert len(signers) >= 6


@pytest.mark.parametrize("ahead", [HOUR / 2, 30 * DAY, -3 * DAY], ids=str)
def test_leaders_with_different_clocks_always_find_a_valid_certificate(ahead: timedelta) -> None:
    """Two leaders in turn, half a year long, one of them with a wrong clock."""
    state, now = CertificateSnapshot(configurations=(configuration(),)), NOW
    for turn in range(90):
        clock = now + ahead if turn % 6 < 2 else now
        steps = 0
        while step := plan(state, clock, POLICY):
            state = taken(step, state, clock)
            steps += 1
            assert steps < 12, step
        assert state.certificate.validity.is_valid(clock)
        assert all(state.certificate.is_trusted_by(b) for where in state.configurations for b in where.bundles)
        assert len(state.cas) <= 4
        now += 2 * DAY


def taken(step: Step, state: CertificateSnapshot, now: datetime) -> CertificateSnapshot:
    match step:
        case AddCA(keep, _):
            both = (*keep, PublishedCA(new_ca("a", now, POLICY.ca_life)))
            return replace(state, cas=tuple(sorted(both, key=lambda t: t.pair.validity.start)))
        case PublishBundle(where, bundle):
            return replace(state, configurations=(replace(where, bundles=(bundle,)),))
        case MarkPublished(authorities):
            return replace(state, cas=tuple(replace(t, published=t.published or now) for t in authorities))
        case IssueCertificate(authority, bundle, _):
            leaf = new_server_certificate(authority, "webhook", POLICY.hosts, now, POLICY.certificate_life)
            return replace(state, certificate=leaf, bundle=split_pem(bundle))
        case UpdateBundle(leaf, bundle):
            return replace(state, certificate=leaf, bundle=split_pem(bundle))


def test_the_policy_is_read_from_the_environment() -> None:
    assert read_policy({}) is None
    assert read_policy({"POOLHOUSE_CERTIFICATE_HOSTS": "a.svc, b.svc"}) == CertificatePolicy(("a.svc", "b.svc"))
    with pytest.raises(ValueError, match="at least twice"):
        read_policy({"POOLHOUSE_CERTIFICATE_HOSTS": "a.svc", "POOLHOUSE_AUTHORITY_HOURS": "200"})
    with pytest.raises(ValueError, match="POOLHOUSE_CERTIFICATE_HOURS"):
        read_policy({"POOLHOUSE_CERTIFICATE_HOSTS": "a.svc", "POOLHOUSE_CERTIFICATE_HOURS": "0"})
