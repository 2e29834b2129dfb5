"""Migration policies: which one applies where, and why it has precedence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.migrationpolicies.explanation import ActivePolicies
from poolhouse.api.migrationpolicies.precedence import RankedPolicy, candidates, reason
from poolhouse.cli.health import assess
from poolhouse.console.page import object_path

MAX_GROUPS = 200


@dataclass
class Group:
    """VMIs of a namespace that the same policies match."""

    namespace: str
    matching: tuple[RankedPolicy, ...]
    names: list[str] = field(default_factory=list)
    stale: int = 0
    """VMIs whose label does not name the winner yet"""

    @property
    def winner(self) -> str:
        return self.matching[0].name if self.matching else ""

    @property
    def why(self) -> str:
        if not self.matching:
            return "no policy matches"
        if len(self.matching) == 1:
            return "no other policy matches"
        return f"against {self.matching[1].name}: {reason(self.matching[0], self.matching[1])}"

    def cell(self, policy: str) -> str:
        """`wins`, the place among the policies that match, or nothing."""
        names = [each.name for each in self.matching]
        if policy not in names:
            return ""
        return "wins" if names[0] == policy else f"place {names.index(policy) + 1}"


def groups(
    vmis: Iterable[VMI], policies: Sequence[RankedPolicy], labels: Mapping[str, Mapping[str, str]]
) -> list[Group]:
    """The VMIs by namespace and matching policies. VMIs that have ended count nowhere."""
    found: dict[tuple[str, tuple[str, ...]], Group] = {}
    known: dict[tuple[str, frozenset[tuple[str, str]]], tuple[RankedPolicy, ...]] = {}
    for vmi in vmis:
        if vmi.final:
            continue
        same = vmi.namespace, frozenset(each for each in vmi.labels.items() if each[0] != meta.MIGRATION_POLICY)
        if same not in known:
            known[same] = candidates(policies, vmi.labels, labels.get(vmi.namespace, {}))
        matching = known[same]
        key = vmi.namespace, tuple(each.name for each in matching)
        group = found.setdefault(key, Group(vmi.namespace, matching))
        group.names.append(vmi.name)
        group.stale += vmi.labels.get(meta.MIGRATION_POLICY, "") != group.winner
    return sorted(found.values(), key=lambda each: (each.namespace, -len(each.names)))


def matrix(
    vmis: Iterable[VMI], documents: Sequence[Json], labels: Mapping[str, Mapping[str, str]], now: datetime
) -> Json:
    """Who wins where: a row for each group of VMIs, a column for each policy in the order of precedence."""
    there = ActivePolicies.of(documents, now)
    active = sorted(there.active, key=lambda each: each.rank)
    found = groups(vmis, active, labels)
    wins: dict[str, int] = defaultdict(int)
    for each in found:
        wins[each.winner] += len(each.names)
    by_name = {each["metadata"]["name"]: each for each in documents}
    order = [
        {
            "name": each.name,
            "path": object_path(MIGRATION_POLICY.short_name, None, each.name),
            "labels": [_label(scope, key, value) for scope, key, value in each.selectors],
            "wins": wins[each.name],
            "health": assess(by_name[each.name]),
            "why": f"before {below.name}: {reason(each, below)}" if below is not None else "",
        }
        for each, below in pairwise([*active, None])
        if each is not None
    ]
    return {
        "groups": found[:MAX_GROUPS],
        "more": max(0, len(found) - MAX_GROUPS),
        "columns": [each.name for each in active],
        "order": order,
        "excluded": sorted(there.excluded.items()),
        "total": sum(len(each.names) for each in found),
        "unmatched": wins[""],
    }


def _label(scope: str, key: str, value: str) -> str:
    where = "namespace " if scope == "namespace" else ""
    return f"{where}{key}={value}" if value else f"{where}{key} (any value)"
