"""Finds the winning policy of each VMI, and recomputes only VMIs that a change can affect."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from poolhouse.api.migrationpolicies.precedence import ANY, Labels, RankedPolicy, WinnerIndex
from poolhouse.runtime.resource import Key


@dataclass
class Changes:
    vmis: set[Key] = field(default_factory=set)
    """New VMIs, and VMIs whose winner has changed."""
    policies: set[str] = field(default_factory=set)
    """Policies whose counts changed, and policies that became active or inactive."""


class LabelledVMIs:
    """The VMIs of one namespace, indexed by the labels that policies select. Other labels have a value for each VMI."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.labels: dict[str, Labels] = {}
        self._by_label: dict[str, dict[str, set[str]]] = {key: {} for key in keys}

    def put(self, name: str, labels: Labels) -> None:
        self.drop(name)
        self.labels[name] = labels
        for key, by_value in self._by_label.items():
            if (value := labels.get(key)) is not None:
                by_value.setdefault(value, set()).add(name)

    def drop(self, name: str) -> None:
        labels = self.labels.pop(name, {})
        for key, by_value in self._by_label.items():
            if (value := labels.get(key)) is not None:
                by_value[value].discard(name)
                if not by_value[value]:
                    del by_value[value]

    def index(self, keys: frozenset[str]) -> None:
        """Changes the label keys of the index."""
        self._by_label = {key: by_value for key, by_value in self._by_label.items() if key in keys}
        for key in keys - self._by_label.keys():
            by_value = self._by_label[key] = {}
            for name, labels in self.labels.items():
                if (value := labels.get(key)) is not None:
                    by_value.setdefault(value, set()).add(name)

    def possible(self, policies: Iterable[RankedPolicy]) -> Iterable[str]:
        """The names of all VMIs that one of the policies matches, and of some others. All keys of the policies must be
        in the index."""
        found: set[str] = set()
        for policy in policies:
            if not policy.selectors.instance:
                return self.labels.keys()
            found |= min((self._with(key, value) for key, value in policy.selectors.instance), key=len)
        return found

    def _with(self, key: str, value: str) -> set[str]:
        by_value = self._by_label[key]
        return set().union(*by_value.values()) if value == ANY else by_value.get(value, set())


class Winners:
    """The winning policies of the VMIs that are neither deleted nor finished. A VMI is decided only if the labels of
    its namespace are known.

    The object keeps the winner of each VMI, and the number of matches and wins of each policy. A new policy can only
    win VMIs, and a deleted policy can only lose the VMIs that it won. A change of a policy therefore costs one
    comparison for each VMI that has the rarest of its labels."""

    def __init__(self) -> None:
        self._policies: dict[str, RankedPolicy] = {}
        self._namespaces: dict[str, Labels] = {}
        self._vmis: dict[str, LabelledVMIs] = {}
        self._keys: frozenset[str] = frozenset()
        """keys of the VMI labels in the policies' selectors"""
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
            self._here(key[0]).put(key[1], labels)
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
            keys = [(name, vmi) for vmi in (self._vmis[name].labels if name in self._vmis else ())]
            before_by_key = {key: self._matching(key) for key in keys}
            if labels is None:
                self._namespaces.pop(name, None)
            else:
                self._namespaces[name] = labels
            for key in keys:
                self._update(key, before_by_key[key], self._matching(key), changes)
            return changes
        self._namespaces[name] = labels
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
        here = self._here(namespace)
        if labels is not None:
            here.put(name, labels)
        else:
            here.drop(name)
            if not here.labels:
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
        self._index_labels([*before.values(), *now.values()])
        for namespace in self._vmis:
            namespace_labels = self._namespaces.get(namespace)
            if namespace_labels is not None:
                left = [each for each in gone if each.selectors.matches_namespace(namespace_labels)]
                joined = [each for each in come if each.selectors.matches_namespace(namespace_labels)]
                self._exchange(namespace, left, joined, changes)
        self._index_labels(now.values())
        return changes

    def _here(self, namespace: str) -> LabelledVMIs:
        if namespace not in self._vmis:
            self._vmis[namespace] = LabelledVMIs(self._keys)
        return self._vmis[namespace]

    def _index_labels(self, policies: Iterable[RankedPolicy]) -> None:
        keys = frozenset(key for each in policies for key, _ in each.selectors.instance)
        if keys != self._keys:
            self._keys = keys
            for here in self._vmis.values():
                here.index(keys)

    def _exchange(self, namespace: str, gone: list[RankedPolicy], come: list[RankedPolicy], changes: Changes) -> None:
        """Decides the VMIs of a namespace after policies no longer match it (`gone`) or newly match it (`come`)."""
        if not (gone or come) or namespace not in self._vmis:
            return
        namespace_labels, here = self._namespaces[namespace], self._vmis[namespace]
        for name in here.possible((*gone, *come)):
            labels = here.labels[name]
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
                winner = min(joined if winner is None else [winner, *joined], key=_rank)
            self._set_winner(key, winner, changes)

    def _matching(self, key: Key) -> tuple[RankedPolicy, ...] | None:
        """The policies that match a VMI, the winner first. None if the VMI or its namespace is unknown."""
        namespace_labels = self._namespaces.get(key[0])
        here = self._vmis.get(key[0])
        labels = here.labels.get(key[1]) if here is not None else None
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
