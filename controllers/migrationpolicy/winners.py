"""Finds the winning policy of each VMI, and recomputes only VMIs that a change can affect."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from migrationpolicies.precedence import Labels, RankedPolicy, WinnerIndex
from runtime.resource import Key


@dataclass
class Changes:
    vmis: set[Key] = field(default_factory=set)
    """New VMIs, and VMIs whose winner has changed."""
    policies: set[str] = field(default_factory=set)
    """Policies whose counts changed, and policies that became active or inactive."""

    def __bool__(self) -> bool:
        return bool(self.vmis or self.policies)


class Winners:
    """The winning policies of the VMIs that are neither deleted nor finished. A VMI is decided only if the labels of
    its namespace are known.

    The object keeps the winner of each VMI, and the number of matches and wins of each policy. A new policy can only
    win VMIs, and a deleted policy can only lose the VMIs that it won. A change of a policy therefore costs one
    comparison for a VMI that another policy wins."""

    def __init__(self) -> None:
        self._policies: dict[str, RankedPolicy] = {}
        self._namespaces: dict[str, Labels] = {}
        self._vmis: dict[str, dict[str, Labels]] = {}
        self._index = WinnerIndex(())
        self._active: dict[str, RankedPolicy] = {}
        self._winners: dict[Key, RankedPolicy | None] = {}
        self._matches: Counter[str] = Counter()
        self._wins: Counter[str] = Counter()

    def load(
        self, policies: Iterable[RankedPolicy], namespaces: Mapping[str, Labels], vmis: Iterable[tuple[Key, Labels]]
    ) -> Changes:
        self._namespaces.update(namespaces)
        changes = self._set_policies({policy.name: policy for policy in policies})
        for key, labels in vmis:
            self._vmis.setdefault(key[0], {})[key[1]] = labels
            self._update(key, None, self._matching(key), changes)
        return changes

    def policy(self, name: str, candidate: RankedPolicy | None) -> Changes:
        """Sets a policy, or removes it if `candidate` is None."""
        if self._policies.get(name) == candidate:
            return Changes()
        others = {each.name: each for each in self._policies.values() if each.name != name}
        return self._set_policies(others if candidate is None else {**others, name: candidate})

    def namespace(self, name: str, labels: Labels | None) -> Changes:
        """Sets a namespace, or removes it if `labels` is None."""
        changes = Changes()
        before = self._namespaces.get(name)
        if before is None or labels is None:
            keys = [(name, vmi) for vmi in self._vmis.get(name, ())]
            before_by_key = {key: self._matching(key) for key in keys}
            if labels is None:
                self._namespaces.pop(name, None)
            else:
                self._namespaces[name] = labels
            for key in keys:
                self._update(key, before_by_key[key], self._matching(key), changes)
            return changes
        self._namespaces[name] = labels
        if any(before.get(key) != labels.get(key) for key in self._index.namespace_keys):
            reached = {each.name for each in self._active.values() if each.selectors.matches_namespace(before)}
            reaches = {each.name for each in self._active.values() if each.selectors.matches_namespace(labels)}
            gone, come = ([self._active[each] for each in found] for found in (reached - reaches, reaches - reached))
            self._exchange(name, gone, come, changes)
        return changes

    def vmi(self, key: Key, labels: Labels | None) -> Changes:
        """Sets a VMI, or removes it if `labels` is None."""
        changes = Changes()
        namespace, name = key
        before = self._matching(key)
        here = self._vmis.setdefault(namespace, {})
        if labels is not None:
            here[name] = labels
        else:
            here.pop(name, None)
            if not here:
                del self._vmis[namespace]
        self._update(key, before, self._matching(key), changes)
        return changes

    def decided(self, key: Key) -> bool:
        return key in self._winners

    def winner(self, key: Key) -> str | None:
        """The winning policy of a VMI. None if no policy matches, or if the VMI is not decided."""
        return _name(self._winners.get(key))

    def older_duplicate(self, name: str) -> str | None:
        return self._index.superseded.get(name)

    def wins(self, name: str) -> int:
        return self._wins[name]

    def losses(self, name: str) -> int:
        return self._matches[name] - self._wins[name]

    def __len__(self) -> int:
        return len(self._winners)

    def _set_policies(self, policies: dict[str, RankedPolicy]) -> Changes:
        before, lost = self._active, self._index.superseded
        self._policies = policies
        self._index = WinnerIndex(policies.values())
        lost_now = self._index.superseded
        now = self._active = {p.name: p for p in policies.values() if p.selectors and p.name not in lost_now}
        gone = [policy for name, policy in before.items() if now.get(name) != policy]
        come = [policy for name, policy in now.items() if before.get(name) != policy]
        duplicates = {name for name in lost.keys() | lost_now if lost.get(name) != lost_now.get(name)}
        changes = Changes(policies={policy.name for policy in (*gone, *come)} | duplicates)
        for namespace in self._vmis:
            namespace_labels = self._namespaces.get(namespace)
            if namespace_labels is not None:
                left = [each for each in gone if each.selectors.matches_namespace(namespace_labels)]
                joined = [each for each in come if each.selectors.matches_namespace(namespace_labels)]
                self._exchange(namespace, left, joined, changes)
        return changes

    def _exchange(self, namespace: str, gone: list[RankedPolicy], come: list[RankedPolicy], changes: Changes) -> None:
        """Decides the VMIs of a namespace after policies no longer match it (`gone`) or newly match it (`come`)."""
        if not gone and not come:
            return
        namespace_labels = self._namespaces[namespace]
        for name, labels in self._vmis.get(namespace, {}).items():
            left = [each for each in gone if each.selectors.matches_vmi(labels)]
            joined = [each for each in come if each.selectors.matches_vmi(labels)]
            if not left and not joined:
                continue
            self._count_matches(left, joined, changes)
            key = namespace, name
            winner = self._winners[key]
            if winner in left:
                winner = self._index.winner(labels, namespace_labels)
            else:
                winner = min(joined if winner is None else [winner, *joined], key=_rank, default=None)
            self._set_winner(key, winner, changes)

    def _matching(self, key: Key) -> tuple[RankedPolicy, ...] | None:
        """The policies that match a VMI, the winner first. None if the VMI or its namespace is unknown."""
        namespace_labels = self._namespaces.get(key[0])
        labels = self._vmis.get(key[0], {}).get(key[1])
        return None if namespace_labels is None or labels is None else self._index.candidates(labels, namespace_labels)

    def _update(
        self,
        key: Key,
        before: tuple[RankedPolicy, ...] | None,
        after: tuple[RankedPolicy, ...] | None,
        changes: Changes,
    ) -> None:
        self._count_matches(before or (), after or (), changes)
        if after is not None:
            self._set_winner(key, after[0] if after else None, changes)
        elif (last := self._winners.pop(key, None)) is not None:
            self._wins[last.name] -= 1
            changes.policies.add(last.name)

    def _count_matches(self, before: Iterable[RankedPolicy], after: Iterable[RankedPolicy], changes: Changes) -> None:
        difference: Counter[str] = Counter()
        for policy in before:
            difference[policy.name] -= 1
        for policy in after:
            difference[policy.name] += 1
        for name, by in difference.items():
            if by:
                self._matches[name] += by
                changes.policies.add(name)

    def _set_winner(self, key: Key, winner: RankedPolicy | None, changes: Changes) -> None:
        known, last = key in self._winners, self._winners.get(key)
        self._winners[key] = winner
        if known and _name(last) == _name(winner):
            return
        changes.vmis.add(key)
        for policy, by in ((last, -1), (winner, 1)):
            if policy is not None:
                self._wins[policy.name] += by
                changes.policies.add(policy.name)


def _name(policy: RankedPolicy | None) -> str | None:
    return None if policy is None else policy.name


def _rank(policy: RankedPolicy) -> tuple[object, ...]:
    return policy.rank
