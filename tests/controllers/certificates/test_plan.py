"""Certificates: from what the cluster holds to the next step, and all the steps of a life in order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from controllers.certificates.build import terms
from controllers.certificates.plan import Accompany, AddAuthority, CountAsPublished, Publish, Sign, Step, plan
from controllers.certificates.state import State, Terms, Trusting
from service.certificates import KeyPair, PublishedCA, join_pem, new_ca, new_server_certificate, split_pem

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
TERMS = Terms(("webhook.svc",), leaf_life=7 * DAY, authority_life=100 * DAY)
OLD = new_ca("old", NOW, TERMS.authority_life)
NEW = new_ca("new", NOW + 60 * DAY, TERMS.authority_life)
LEAF = new_server_certificate(OLD, "webhook", TERMS.hosts, NOW, TERMS.leaf_life)
AHEAD = NOW + 3 * DAY
EARLY = new_ca("made by a clock that was ahead", AHEAD, TERMS.authority_life)
NOT_BEGUN = "it has not begun: a clock was ahead, or this one is behind"


def leaf(authority: KeyPair, now: datetime) -> KeyPair:
    return new_server_certificate(authority, "webhook", TERMS.hosts, now, TERMS.leaf_life)


def asked(*bundles: KeyPair) -> Trusting:
    return Trusting("mutatingwebhookconfigurations", "ours", "1", (join_pem([pair.certificate for pair in bundles]),))


def known(*pairs: KeyPair) -> tuple[bytes, ...]:
    return tuple(pair.certificate for pair in pairs)


RESTING = State((PublishedCA(OLD, NOW),), "1", LEAF, known(OLD), "1", (asked(OLD),))


@pytest.mark.parametrize(
    ("state", "now", "expected"),
    [
        pytest.param(RESTING, NOW + HOUR, None, id="at rest nothing is done"),
        pytest.param(State(), NOW, AddAuthority((), "there is none"), id="the first"),
        pytest.param(
            replace(RESTING, trusting=(asked(),)), NOW, Publish(asked(), OLD.certificate), id="overwritten by somebody"
        ),
        pytest.param(
            State((PublishedCA(OLD),), "1"),
            NOW,
            CountAsPublished((PublishedCA(OLD),)),
            id="nobody left who does not trust it",
        ),
        pytest.param(
            State((PublishedCA(OLD, NOW),), "1", None, (), None, (asked(OLD),)),
            NOW,
            Sign(OLD, OLD.certificate, "there is none that can be shown"),
            id="with nothing to show, nobody is waited for",
        ),
        pytest.param(
            RESTING, NOW + 5 * DAY, Sign(OLD, OLD.certificate, "it is due"), id="due long before the certificate ends"
        ),
        pytest.param(RESTING, NOW + 8 * DAY, Sign(OLD, OLD.certificate, "it has ended"), id="one that has ended"),
        pytest.param(
            RESTING, NOW + 61 * DAY, AddAuthority((PublishedCA(OLD, NOW),), "the newest is due"), id="a due authority"
        ),
        pytest.param(
            replace(RESTING, leaf_bundle=()), NOW, Accompany(LEAF, OLD.certificate), id="a bundle lost beside the leaf"
        ),
        pytest.param(
            replace(RESTING, authorities=(), authorities_version=None),
            NOW,
            AddAuthority((), "there is none"),
            id="the authorities' Secret was deleted",
        ),
        pytest.param(
            State((PublishedCA(NEW),), "2", LEAF, known(OLD), "1", (asked(OLD),)),
            NOW + 60 * DAY,
            Publish(asked(OLD), join_pem(known(OLD, NEW))),
            id="after that, the lost authority stays trusted",
        ),
        pytest.param(
            replace(RESTING, leaf=new_server_certificate(NEW, "webhook", TERMS.hosts, NOW, DAY)),
            NOW,
            Sign(OLD, OLD.certificate, "nobody trusts the one there is"),
            id="a leaf of an unknown authority",
        ),
        pytest.param(
            replace(RESTING, leaf=leaf(OLD, NOW + 30 * MINUTE)), NOW, None, id="a clock that was half an hour ahead"
        ),
        pytest.param(RESTING, NOW - 30 * MINUTE, None, id="a clock that is half an hour behind"),
        pytest.param(
            replace(RESTING, leaf=leaf(OLD, AHEAD)),
            NOW,
            Sign(OLD, OLD.certificate, NOT_BEGUN),
            id="a certificate that has not begun, by a clock that was days ahead",
        ),
        pytest.param(
            State((PublishedCA(EARLY, AHEAD),), "1", leaf(EARLY, AHEAD), known(EARLY), "1", (asked(EARLY),)),
            NOW,
            AddAuthority((PublishedCA(EARLY, AHEAD),), "none has begun: a clock was ahead, or this one is behind"),
            id="an authority that has not begun is none",
        ),
        pytest.param(
            State(
                (PublishedCA(OLD, NOW), PublishedCA(EARLY, AHEAD)),
                "1",
                LEAF,
                known(OLD, EARLY),
                "1",
                (asked(OLD, EARLY),),
            ),
            NOW + 2 * DAY,
            None,
            id="beside one that holds, it only waits for its time",
        ),
        pytest.param(
            State(
                (PublishedCA(OLD, NOW), PublishedCA(EARLY, NOW)),
                "1",
                leaf(EARLY, NOW),
                known(OLD, EARLY),
                "1",
                (asked(OLD, EARLY),),
            ),
            NOW,
            Sign(OLD, join_pem(known(OLD, EARLY)), "nobody trusts the one there is"),
            id="nobody believes what it has signed until then",
        ),
        pytest.param(
            replace(RESTING, trusting=()), NOW, None, id="where admission was switched off, nothing brings it back"
        ),
    ],
)
def test_the_next_step(state: State, now: datetime, expected: Step | None) -> None:
    assert plan(state, now, TERMS) == expected


def test_a_new_host_is_signed_for() -> None:
    step = plan(RESTING, NOW + HOUR, replace(TERMS, hosts=("webhook.svc", "controllers.svc")))
    assert step == Sign(OLD, OLD.certificate, "it does not name every host")


def test_no_leaf_is_ever_shown_whose_authority_is_not_trusted() -> None:
    """A year in steps of half a day: each step taken as it comes, the leaf judged after each."""
    state, now, signers = State(trusting=(asked(),)), NOW, set()
    for _ in range(2 * 365):
        while step := plan(state, now, TERMS):
            state = taken(step, state, now)
            if state.leaf is not None:
                assert all(state.leaf.is_trusted_by(b) for where in state.trusting for b in where.bundles)
        assert state.leaf is not None
        assert not state.leaf.validity.expired(now)
        signers.add(state.leaf.issuer)
        assert len(state.authorities) <= 2
        now += DAY / 2
    assert len(signers) >= 6


@pytest.mark.parametrize("ahead", [HOUR / 2, 30 * DAY, -3 * DAY], ids=str)
def test_whoever_leads_with_another_clock_there_is_always_a_certificate_by_the_own_one(ahead: timedelta) -> None:
    """Two leaders in turn, half a year long, one of them with a wrong clock."""
    state, now = State(trusting=(asked(),)), NOW
    for turn in range(90):
        clock = now + ahead if turn % 6 < 2 else now
        steps = 0
        while step := plan(state, clock, TERMS):
            state = taken(step, state, clock)
            steps += 1
            assert steps < 12, step
        assert state.leaf is not None
        assert state.leaf.validity.is_valid(clock)
        assert all(state.leaf.is_trusted_by(b) for where in state.trusting for b in where.bundles)
        assert len(state.authorities) <= 4
        now += 2 * DAY


def taken(step: Step, state: State, now: datetime) -> State:
    match step:
        case AddAuthority(keep, _):
            both = (*keep, PublishedCA(new_ca("a", now, TERMS.authority_life)))
            return replace(state, authorities=tuple(sorted(both, key=lambda t: t.pair.validity.start)))
        case Publish(where, bundle):
            return replace(state, trusting=(replace(where, bundles=(bundle,)),))
        case CountAsPublished(authorities):
            return replace(state, authorities=tuple(replace(t, published=t.published or now) for t in authorities))
        case Sign(authority, bundle, _):
            leaf = new_server_certificate(authority, "webhook", TERMS.hosts, now, TERMS.leaf_life)
            return replace(state, leaf=leaf, leaf_bundle=split_pem(bundle))
        case Accompany(leaf, bundle):
            return replace(state, leaf=leaf, leaf_bundle=split_pem(bundle))


def test_the_terms_are_read() -> None:
    assert terms({}) is None
    assert terms({"POOLHOUSE_CERTIFICATE_HOSTS": "a.svc, b.svc"}) == Terms(("a.svc", "b.svc"))
    with pytest.raises(ValueError, match="at least twice"):
        terms({"POOLHOUSE_CERTIFICATE_HOSTS": "a.svc", "POOLHOUSE_AUTHORITY_HOURS": "200"})
    with pytest.raises(ValueError, match="POOLHOUSE_CERTIFICATE_HOURS"):
        terms({"POOLHOUSE_CERTIFICATE_HOSTS": "a.svc", "POOLHOUSE_CERTIFICATE_HOURS": "0"})
