"""What the cluster holds of our certificates, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from service.certificates import KeyPair, PublishedCA


@dataclass(frozen=True)
class Terms:
    """How long things last, and for whom they are."""

    hosts: tuple[str, ...]
    """the names by which the servers are reached"""
    leaf_life: timedelta = timedelta(days=7)
    authority_life: timedelta = timedelta(days=365)
    settle: timedelta = timedelta(seconds=30)
    """how long an API server may take to learn of a new bundle"""


@dataclass(frozen=True)
class State:
    """What was read. Each resourceVersion is that of the object a step would write."""

    authorities: tuple[PublishedCA, ...] = ()
    """the oldest first"""
    authorities_version: str | None = None
    """None: there is no such Secret"""
    leaf: KeyPair | None = None
    """None: there is none, or what is there is none"""
    leaf_bundle: tuple[bytes, ...] = ()
    """certificates that whoever asks our servers has trusted until now"""
    leaf_version: str | None = None
    trusting: tuple[Trusting, ...] = ()


@dataclass(frozen=True)
class Trusting:
    """A webhook configuration, and what it makes the API server trust for each of its webhooks."""

    plural: str
    name: str
    version: str
    bundles: tuple[bytes, ...]
