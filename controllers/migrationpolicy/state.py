"""What is known of a policy, of an instance and of KubeVirt's side: small frozen views."""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import intern
from typing import Any

from apimachinery.unstructured import Json, at
from kinds import meta
from kinds.migrationpolicy import MIGRATION_POLICY
from migrationpolicies.precedence import Labels, RankedPolicy, is_active, ranked_policy
from migrationpolicies.upstream import UpstreamPolicy
from runtime.resource import Key


@dataclass(frozen=True)
class Instance:
    """A VirtualMachineInstance."""

    namespace: str
    name: str
    uid: str
    labels: Labels
    """all but our stamp"""
    stamp: str | None
    live: bool
    """neither being deleted nor ended: it may yet be migrated"""

    @property
    def key(self) -> Key:
        return self.namespace, self.name


@dataclass(frozen=True)
class Namespace:
    name: str
    labels: Labels


@dataclass(frozen=True)
class Policy:
    name: str
    uid: str
    generation: int
    deleting: bool
    ranked: RankedPolicy
    problem: str
    """why it may not take part in deciding: it came past the webhook; empty where it may"""
    spec: Json
    status: Json

    @property
    def entered(self) -> RankedPolicy | None:
        return None if self.deleting or self.problem else self.ranked


@dataclass(frozen=True)
class Enforcer:
    """A policy of KubeVirt's: one that enforces a policy of ours, or anybody's."""

    name: str
    uid: str
    owner: str
    """UID of its controller; empty for none"""
    marked: bool
    """it carries our label"""
    deleting: bool
    spec: Json
    upstream: UpstreamPolicy


@dataclass(frozen=True)
class State:
    policy: Policy
    elder: str | None = None
    """the policy that has the same selectors and is older"""
    wins: int = 0
    losses: int = 0
    served: bool = True
    """KubeVirt's kind is there"""
    enforcer: Enforcer | None = None
    """KubeVirt's policy of the same name"""
    threats: tuple[str, ...] = ()
    """KubeVirt's policies, of others, that it could prefer"""
    configuration: Json = field(default_factory=dict)
    """what KubeVirt's own object says about migrations"""
    contested: bool = False
    """a repair is due and put off, because somebody undid the last ones"""
    refusal: str = ""
    """what came of the last attempt to write KubeVirt's policy"""
    unstamped: tuple[int, str] = (0, "")
    """how many of its VMs could not be labelled, and why"""

    @property
    def active(self) -> bool:
        return self.policy.entered is not None and self.elder is None and bool(self.policy.ranked.selectors)


def instance(document: Json) -> Instance:
    metadata = document["metadata"]
    found = {intern(key): intern(value) for key, value in (metadata.get("labels") or {}).items()}
    stamp = found.pop(meta.MIGRATION_POLICY, None)
    return Instance(
        namespace=intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata["uid"],
        labels=found,
        stamp=stamp,
        live=is_active(document),
    )


def namespace(document: Json) -> Namespace:
    metadata = document["metadata"]
    return Namespace(metadata["name"], dict(metadata.get("labels") or {}))


def policy(document: Json) -> Policy:
    metadata = document["metadata"]
    problems = MIGRATION_POLICY.problems(document)
    return Policy(
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        deleting=bool(metadata.get("deletionTimestamp")),
        ranked=ranked_policy(document),
        problem=str(problems[0]) if problems else "",
        spec=_object(document.get("spec")),
        status=_object(document.get("status")),
    )


def enforcer(document: Json) -> Enforcer:
    metadata, upstream = document["metadata"], UpstreamPolicy.of(document)
    return Enforcer(
        name=metadata["name"],
        uid=metadata["uid"],
        owner=upstream.owner,
        marked=at(metadata, "labels", meta.MANAGED_BY) == meta.POOLHOUSE,
        deleting=bool(metadata.get("deletionTimestamp")),
        spec=_object(document.get("spec")),
        upstream=upstream,
    )


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
