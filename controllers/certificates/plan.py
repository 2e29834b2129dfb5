"""The next step towards certificates that are valid and trusted, or none.

The order is what keeps every admission answered. A new authority is published first, then counts as published, and
signs only when every API server has had time to learn of it; the old one stays trusted until it ends by itself. Only
where there is no certificate that could be shown is nobody waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from controllers.certificates.state import State, Terms, Trusting
from runtime.certificates import Pair, Trusted, ended, joined, signer, split, wants_authority, wants_leaf


@dataclass(frozen=True)
class AddAuthority:
    """A new one beside those that have not ended."""

    keep: tuple[Trusted, ...]
    reason: str


@dataclass(frozen=True)
class Publish:
    """Have API servers trust this bundle."""

    where: Trusting
    bundle: bytes


@dataclass(frozen=True)
class CountAsPublished:
    """From now on: every API server is learning of all of them."""

    authorities: tuple[Trusted, ...]


@dataclass(frozen=True)
class Sign:
    """A new certificate for the servers."""

    authority: Pair
    bundle: bytes
    reason: str


@dataclass(frozen=True)
class Accompany:
    """The certificate stays; those who ask our servers must trust what API servers trust."""

    leaf: Pair
    bundle: bytes


Step = AddAuthority | Publish | CountAsPublished | Sign | Accompany


def plan(state: State, now: datetime, terms: Terms) -> Step | None:
    living = tuple(trusted for trusted in state.authorities if not trusted.pair.window.ended(now))
    if wants_authority(living, now):
        return AddAuthority(living, "there is none" if not living else "the newest is due")
    bundle = trusted_by_clients(state, living, now)
    for where in state.trusting:
        if any(found != bundle for found in where.bundles):
            return Publish(where, bundle)
    if any(trusted.published is None for trusted in living):
        return CountAsPublished(living)
    return _leaf(state, living, bundle, now, terms)


def trusted_by_clients(state: State, living: tuple[Trusted, ...], now: datetime) -> bytes:
    """Our authorities, and before them whoever else is trusted until now: servers may still show what they signed,
    even if both our Secrets were lost or somebody else kept the certificates until today."""
    ours = [trusted.pair.certificate for trusted in living]
    published = [each for where in state.trusting for bundle in where.bundles for each in split(bundle)]
    known = dict.fromkeys([*state.leaf_bundle, *published])
    others = [each for each in known if each not in ours and not ended(each, now)]
    return joined([*others, *ours])


def _leaf(state: State, living: tuple[Trusted, ...], bundle: bytes, now: datetime, terms: Terms) -> Step | None:
    leaf = state.leaf
    settled = signer(living, now, terms.settle)
    if leaf is None or leaf.window.ended(now) or not leaf.signed_by_one_of(bundle):
        # Nobody is answered now, so there is nothing to protect by waiting.
        return Sign(settled or living[-1].pair, bundle, _nothing_to_show(leaf, now))
    if settled is not None and wants_leaf(leaf, settled, terms.hosts, now):
        return Sign(settled, bundle, _better(leaf, settled, now))
    if state.leaf_bundle != split(bundle):
        return Accompany(leaf, bundle)
    return None


def _nothing_to_show(leaf: Pair | None, now: datetime) -> str:
    if leaf is None:
        return "there is none that can be shown"
    return "it has ended" if leaf.window.ended(now) else "nobody trusts the one there is"


def _better(leaf: Pair, authority: Pair, now: datetime) -> str:
    if leaf.issuer != authority.name:
        return "there is a newer authority"
    return "it is due" if leaf.window.due(now) else "it does not name every host"
