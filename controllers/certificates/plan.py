"""The next step towards certificates that are valid and trusted, or none.

The order is what keeps every admission answered. A new authority is published first, then counts as published, and
signs only when every API server has had time to learn of it; the old one stays trusted until it ends by itself. Only
where there is no certificate that could be shown is nobody waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from controllers.certificates.state import State, Terms, Trusting
from service.certificates import (
    KeyPair,
    PublishedCA,
    ca_renewal_due,
    certificate_renewal_due,
    join_pem,
    read_validity,
    signing_ca,
    split_pem,
)


@dataclass(frozen=True)
class AddAuthority:
    """A new one beside those that have not ended."""

    keep: tuple[PublishedCA, ...]
    reason: str


@dataclass(frozen=True)
class Publish:
    """Have API servers trust this bundle."""

    where: Trusting
    bundle: bytes


@dataclass(frozen=True)
class CountAsPublished:
    """From now on: every API server is learning of all of them."""

    authorities: tuple[PublishedCA, ...]


@dataclass(frozen=True)
class Sign:
    """A new certificate for the servers."""

    authority: KeyPair
    bundle: bytes
    reason: str


@dataclass(frozen=True)
class Accompany:
    """The certificate stays; those who ask our servers must trust what API servers trust."""

    leaf: KeyPair
    bundle: bytes


Step = AddAuthority | Publish | CountAsPublished | Sign | Accompany


def plan(state: State, now: datetime, terms: Terms) -> Step | None:
    living = tuple(trusted for trusted in state.authorities if not trusted.pair.validity.expired(now))
    if ca_renewal_due(living, now):
        return AddAuthority(living, _no_authority(living, now))
    bundle = trusted_by_clients(state, living, now)
    for where in state.trusting:
        if any(found != bundle for found in where.bundles):
            return Publish(where, bundle)
    if any(trusted.published is None for trusted in living):
        return CountAsPublished(living)
    return _leaf(state, living, bundle, now, terms)


def trusted_by_clients(state: State, living: tuple[PublishedCA, ...], now: datetime) -> bytes:
    """Our authorities, and before them whoever else is trusted until now: servers may still show what they signed,
    even if both our Secrets were lost or somebody else kept the certificates until today."""
    ours = [trusted.pair.certificate for trusted in living]
    published = [each for where in state.trusting for bundle in where.bundles for each in split_pem(bundle)]
    known = dict.fromkeys([*state.leaf_bundle, *published])
    others = [each for each in known if each not in ours and not read_validity(each).expired(now)]
    return join_pem([*others, *ours])


def _leaf(state: State, living: tuple[PublishedCA, ...], bundle: bytes, now: datetime, terms: Terms) -> Step | None:
    leaf = state.leaf
    settled = signing_ca(living, now, terms.settle)
    verifying = join_pem([each for each in split_pem(bundle) if read_validity(each).is_valid(now)])
    if leaf is None or not leaf.validity.is_valid(now) or not leaf.is_trusted_by(verifying):
        # Nobody is answered now, so there is nothing to protect by waiting.
        newest = [trusted.pair for trusted in living if trusted.pair.validity.is_valid(now)][-1]
        return Sign(settled or newest, bundle, _nothing_to_show(leaf, now))
    if settled is not None and certificate_renewal_due(leaf, settled, terms.hosts, now):
        return Sign(settled, bundle, _better(leaf, settled, now))
    if state.leaf_bundle != split_pem(bundle):
        return Accompany(leaf, bundle)
    return None


def _no_authority(living: tuple[PublishedCA, ...], now: datetime) -> str:
    if not living:
        return "there is none"
    begun = any(trusted.pair.validity.is_valid(now) for trusted in living)
    return "the newest is due" if begun else "none has begun: a clock was ahead, or this one is behind"


def _nothing_to_show(leaf: KeyPair | None, now: datetime) -> str:
    if leaf is None:
        return "there is none that can be shown"
    if leaf.validity.is_valid(now):
        return "nobody trusts the one there is"
    return (
        "it has ended" if leaf.validity.expired(now) else "it has not begun: a clock was ahead, or this one is behind"
    )


def _better(leaf: KeyPair, authority: KeyPair, now: datetime) -> str:
    if leaf.issuer != authority.name:
        return "there is a newer authority"
    return "it is due" if leaf.validity.renewal_due(now) else "it does not name every host"
