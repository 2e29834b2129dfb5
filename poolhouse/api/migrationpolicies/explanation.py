"""Explains which policy applies to a VMI and why, for the CLI and the webhook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json, at, value_text
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.migrationpolicies import precedence
from poolhouse.api.migrationpolicies.effective_settings import ClusterMigrations, effective_settings
from poolhouse.api.migrationpolicies.expiry import expires_at, is_expired
from poolhouse.api.migrationpolicies.precedence import (
    ANY,
    Labels,
    RankedPolicy,
    candidates,
    ranked_policy,
    reason,
    superseded,
)
from poolhouse.api.migrationpolicies.upstream import UpstreamPolicy, upstream_spec

_FIELDS = {"instance": "virtualMachineInstance", "namespace": "namespace"}


@dataclass(frozen=True)
class ClusterState:
    """The documents that the explanation depends on."""

    policies: tuple[Json, ...] = ()
    kubevirt: Json = field(default_factory=dict)
    """the KubeVirt object; empty without KubeVirt"""
    upstream: Sequence[Json] | None = ()
    """KubeVirt's own migration policies; None if the caller may not list them"""
    unreadable: tuple[str, ...] = ()
    """descriptions of the objects that the caller may not read"""
    now: datetime | None = None
    """None for documents that are compared without a time, in which no policy has expired"""
    hypothetical: frozenset[str] = frozenset()
    """names of policies that differ from the cluster's, so that KubeVirt cannot enforce them yet"""

    @property
    def migrations(self) -> ClusterMigrations:
        return ClusterMigrations.of(self.kubevirt)

    def with_policies(self, policies: Iterable[Json]) -> ClusterState:
        """The state with these policies added. They replace policies of the same names."""
        by_name = {at(each, "metadata", "name"): each for each in self.policies}
        hypothetical = set(self.hypothetical)
        for each in policies:
            name = at(each, "metadata", "name")
            created = at(by_name.get(name), "metadata", "creationTimestamp")
            by_name[name] = {**each, "metadata": {**each["metadata"], "creationTimestamp": created}}
            hypothetical.add(name)
        return replace(self, policies=tuple(by_name.values()), hypothetical=frozenset(hypothetical))

    def without_policies(self, *names: str) -> ClusterState:
        left = tuple(each for each in self.policies if at(each, "metadata", "name") not in names)
        return replace(self, policies=left)


@dataclass(frozen=True)
class ActivePolicies:
    """The policies that can apply to VMIs, and the reasons why other policies cannot."""

    active: tuple[RankedPolicy, ...]
    excluded: Mapping[str, str]

    @classmethod
    def of(cls, policies: Iterable[Json], now: datetime | None) -> ActivePolicies:
        out = {}
        found = []
        for document in policies:
            policy = ranked_policy(document)
            if problems := MIGRATION_POLICY.problems(document):
                out[policy.name] = f"it is not valid, and so never applied: {problems[0]}"
            elif now is not None and is_expired(document, now):
                out[policy.name] = f"it expired at {at(document, 'spec', 'expiresAt')}"
            elif not policy.selectors:
                out[policy.name] = "it has no label in either selector, and so matches nothing"
            else:
                found.append(policy)
        for name, elder in superseded(found).items():
            out[name] = f"it has the same selectors as {elder}, which is older, and is never applied"
        return cls(tuple(each for each in found if each.name not in out), out)


def explain(instance: Labels, namespace: Labels, there: ClusterState) -> Json:
    """An `ExplainResponse` as JSON. `instance` and `namespace` are the labels of the VMI and of its namespace."""
    instance = {key: value for key, value in instance.items() if key != meta.MIGRATION_POLICY}
    policies = ActivePolicies.of(there.policies, there.now)
    found = candidates(policies.active, instance, namespace)
    winner = found[0] if found else None
    obeyed = next((each for each in there.policies if winner and at(each, "metadata", "name") == winner.name), None)
    settings = effective_settings(at(obeyed, "spec"), there.migrations)
    return {
        "policy": winner.name if winner else None,
        "reason": _won(found),
        "candidates": [_candidate(place, each, found, instance, namespace) for place, each in enumerate(found)],
        "others": [
            {"name": each.name, "reason": policies.excluded.get(each.name) or _absent(each, instance, namespace)}
            for each in sorted(map(ranked_policy, there.policies), key=lambda each: each.rank)
            if each not in found
        ],
        "settings": {
            name: {
                "value": each.value,
                "source": each.source,
                **({"from": winner.name} if winner and each.source == "policy" else {}),
                **({"unheeded": each.ignored} if each.ignored is not None else {}),
            }
            for name, each in settings.items()
        },
        "notes": [
            *(f"{what} could not be read, and is not counted here" for what in there.unreadable),
            *_not_enforced(obeyed, there),
            *_obeyed_instead(obeyed, instance, namespace, there),
            *_ends(obeyed, found),
            *(
                f"policy {winner.name} says {name}: {value_text(each.ignored)}, which this cluster ignores: {each.why}"
                for name, each in settings.items()
                if winner and each.ignored is not None
            ),
        ],
    }


@dataclass(frozen=True, order=True)
class WinnerChange:
    """A VMI to which another policy would apply."""

    namespace: str
    name: str
    before: str | None
    after: str | None


def impact(
    instances: Iterable[tuple[str, str, Labels]], namespaces: Mapping[str, Labels], old: ClusterState, new: ClusterState
) -> list[WinnerChange]:
    """The VMIs (namespace, name, labels) whose policy differs between the two states."""
    before, after = (ActivePolicies.of(each.policies, each.now).active for each in (old, new))
    changed = [each for each in {*before, *after} if (each in before) is not (each in after)]
    found = []
    for namespace, name, labels in instances:
        around = namespaces.get(namespace, {})
        # The winner can change only if a changed policy matches the VMI.
        if any(each.selectors.matches(labels, around) for each in changed):
            change = WinnerChange(namespace, name, _first(before, labels, around), _first(after, labels, around))
            if change.before != change.after:
                found.append(change)
    return sorted(found, key=lambda change: (change.namespace, change.name))


def _first(policies: Iterable[RankedPolicy], instance: Labels, namespace: Labels) -> str | None:
    found = candidates(policies, instance, namespace)
    return found[0].name if found else None


def _won(found: tuple[RankedPolicy, ...]) -> str:
    if not found:
        return "no policy matches"
    if len(found) == 1:
        return "no other policy matches"
    return f"it goes before {found[1].name}: {reason(found[0], found[1])}"


def _candidate(
    place: int, each: RankedPolicy, found: tuple[RankedPolicy, ...], instance: Labels, namespace: Labels
) -> dict[str, Any]:
    there = {"instance": instance, "namespace": namespace}
    return {
        "name": each.name,
        "winner": place == 0,
        "matchingLabels": len(each.selectors),
        "keys": list(each.selectors.keys),
        "labels": {
            told: {key: there[scope][key] for which, key, _ in each.selectors if which == scope}
            for scope, told in _FIELDS.items()
        },
        "reason": _won(found) if place == 0 else f"{found[0].name} goes first: {reason(found[0], each)}",
    }


def _absent(each: RankedPolicy, instance: Labels, namespace: Labels) -> str:
    wanted = precedence.missing(each.selectors, instance, namespace)
    return "; ".join(_wants(scope, key, value, found) for scope, key, value, found in wanted)


def _wants(scope: str, key: str, value: str, found: str | None) -> str:
    owner = "VMI" if scope == "instance" else "namespace"
    asked = f"{key}={value}" if value != ANY else f"{key} with any value"
    return f"it wants {asked}; the {owner} has " + (f"no label {key}" if found is None else f"{key}={found}")


def _ends(obeyed: Json | None, found: tuple[RankedPolicy, ...]) -> Iterable[str]:
    """Says when the winner expires, and which policy applies then."""
    if obeyed is not None and expires_at(obeyed) is not None:
        then = f"policy {found[1].name}" if len(found) > 1 else "no policy"
        yield f"policy {found[0].name} expires at {at(obeyed, 'spec', 'expiresAt')}; after that, {then} applies"


def _not_enforced(obeyed: Json | None, there: ClusterState) -> Iterable[str]:
    """Reasons why KubeVirt has no policy with the same settings."""
    name = at(obeyed, "metadata", "name")
    if obeyed is None or name in there.hypothetical:
        return
    found = None if there.upstream is None else _enforcer(obeyed, there.upstream)
    spec = at(found, "spec") or {}
    if found is not None and spec == upstream_spec(name, at(obeyed, "spec") or {}, there.migrations, spec):
        return
    conditions = at(obeyed, "status", "conditions") or ()
    told: Json = next((each for each in conditions if each.get("type") == "Enforced"), {})
    if told.get("status") == "False" and told.get("reason") not in _NOT_FOR_EVERY_VMI:
        yield f"not enforced: {told.get('message')}"
    elif there.upstream is not None:
        yield f"not enforced: KubeVirt has no migration policy {name} of Poolhouse with the same settings"


# Reasons that concern only some VMIs. `_obeyed_instead` and the settings report such reasons for this VMI.
_NOT_FOR_EVERY_VMI = ("FailedLabel", "Overridden", "Unsupported")


def _enforcer(policy: Json, upstream: Iterable[Json]) -> Json | None:
    """KubeVirt's policy that enforces a MigrationPolicy, found by owner UID, because names can be reused."""
    uid = at(policy, "metadata", "uid")
    return next((each for each in upstream if uid and UpstreamPolicy.of(each).owner == uid), None)


def _obeyed_instead(obeyed: Json | None, instance: Labels, namespace: Labels, there: ClusterState) -> Iterable[str]:
    """Describes a policy of another owner that KubeVirt applies to the VMI instead."""
    name = at(obeyed, "metadata", "name")
    stamped = {**instance, **({meta.MIGRATION_POLICY: name} if name else {})}
    upstream = there.upstream or ()
    ours = None if obeyed is None else _enforcer(obeyed, upstream)
    others = [UpstreamPolicy.of(each) for each in upstream if each is not ours]
    best = min((each for each in others if each.matches(stamped, namespace)), key=lambda each: each.rank, default=None)
    enforced = ours is not None or name in there.hypothetical
    if best is not None and (not enforced or best.outranks(name)):
        instead = f"instead of {name}" if name else "though none of ours matches"
        yield f"KubeVirt obeys its own policy {best.name} {instead}: it is in migrations.kubevirt.io, not ours"
