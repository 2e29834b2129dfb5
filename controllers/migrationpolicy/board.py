"""Who obeys whom. Told of one change at a time, it decides again what that change can affect, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from migrationpolicies.precedence import Labels, RankedPolicy, WinnerIndex
from runtime.resource import Key


@dataclass
class Touched:
    """What a change has changed."""

    instances: set[Key] = field(default_factory=set)
    """those that obey another policy than before, and those that are new"""
    policies: set[str] = field(default_factory=set)
    """those that win or lose others than before, or that have come to take part in deciding or ceased to"""

    def __bool__(self) -> bool:
        return bool(self.instances or self.policies)


class Board:
    """The instances it holds are those that run or will; of a namespace that it has not been told of, no instance is
    decided, because labels that are not known must not look like labels that are not there.

    Of each instance it keeps the winner, of each policy how many match it and how many it wins. A policy that comes can
    only win; one that goes can only leave those that it had won. So of ten thousand instances that match it, those that
    somebody else wins cost one comparison each.
    """

    def __init__(self) -> None:
        self._policies: dict[str, RankedPolicy] = {}
        self._namespaces: dict[str, Labels] = {}
        self._instances: dict[str, dict[str, Labels]] = {}
        self._index = WinnerIndex(())
        self._active: dict[str, RankedPolicy] = {}
        self._winners: dict[Key, RankedPolicy | None] = {}
        self._matches: Counter[str] = Counter()
        self._wins: Counter[str] = Counter()

    def load(
        self,
        policies: Iterable[RankedPolicy],
        namespaces: Mapping[str, Labels],
        instances: Iterable[tuple[Key, Labels]],
    ) -> Touched:
        """Everything at once, into an empty board: each instance is decided once, not once for every policy."""
        self._namespaces.update(namespaces)
        touched = self._entered({policy.name: policy for policy in policies})
        for key, labels in instances:
            self._instances.setdefault(key[0], {})[key[1]] = labels
            self._stand(key, None, self._standing(key), touched)
        return touched

    def policy(self, name: str, contender: RankedPolicy | None) -> Touched:
        """A policy as it is now; None when it is gone or may not take part."""
        if self._policies.get(name) == contender:
            return Touched()
        others = {each.name: each for each in self._policies.values() if each.name != name}
        return self._entered(others if contender is None else {**others, name: contender})

    def namespace(self, name: str, labels: Labels | None) -> Touched:
        """A namespace as it is now; None when it is gone, which its instances are by then as well."""
        touched = Touched()
        before = self._namespaces.get(name)
        if before is None or labels is None:
            keys = [(name, instance) for instance in self._instances.get(name, ())]
            stood = {key: self._standing(key) for key in keys}
            if labels is None:
                self._namespaces.pop(name, None)
            else:
                self._namespaces[name] = labels
            for key in keys:
                self._stand(key, stood[key], self._standing(key), touched)
            return touched
        self._namespaces[name] = labels
        if any(before.get(key) != labels.get(key) for key in self._index.namespace_keys):
            reached = {each.name for each in self._active.values() if each.selectors.reach(before)}
            reaches = {each.name for each in self._active.values() if each.selectors.reach(labels)}
            gone, come = ([self._active[each] for each in found] for found in (reached - reaches, reaches - reached))
            self._exchange(name, gone, come, touched)
        return touched

    def instance(self, key: Key, labels: Labels | None) -> Touched:
        """An instance as it is now; None when it is gone, going, or has run its course."""
        touched = Touched()
        namespace, name = key
        before = self._standing(key)
        here = self._instances.setdefault(namespace, {})
        if labels is not None:
            here[name] = labels
        else:
            here.pop(name, None)
            if not here:
                del self._instances[namespace]
        self._stand(key, before, self._standing(key), touched)
        return touched

    def decided(self, key: Key) -> bool:
        return key in self._winners

    def winner(self, key: Key) -> str | None:
        """The policy that an instance obeys; None for none, or where nothing is decided."""
        return _name(self._winners.get(key))

    def elder(self, name: str) -> str | None:
        """The policy that has the same selectors as this one and is older, if there is one."""
        return self._index.superseded.get(name)

    def wins(self, name: str) -> int:
        return self._wins[name]

    def losses(self, name: str) -> int:
        return self._matches[name] - self._wins[name]

    def __len__(self) -> int:
        return len(self._winners)

    def _entered(self, policies: dict[str, RankedPolicy]) -> Touched:
        before, lost = self._active, self._index.superseded
        self._policies = policies
        self._index = WinnerIndex(policies.values())
        lost_now = self._index.superseded
        now = self._active = {p.name: p for p in policies.values() if p.selectors and p.name not in lost_now}
        gone = [policy for name, policy in before.items() if now.get(name) != policy]
        come = [policy for name, policy in now.items() if before.get(name) != policy]
        judged = {name for name in lost.keys() | lost_now if lost.get(name) != lost_now.get(name)}
        touched = Touched(policies={policy.name for policy in (*gone, *come)} | judged)
        for namespace in self._instances:
            around = self._namespaces.get(namespace)
            if around is not None:
                left = [each for each in gone if each.selectors.reach(around)]
                joined = [each for each in come if each.selectors.reach(around)]
                self._exchange(namespace, left, joined, touched)
        return touched

    def _exchange(self, namespace: str, gone: list[RankedPolicy], come: list[RankedPolicy], touched: Touched) -> None:
        """Of a namespace's instances, those that match what can no longer or what can now be matched there."""
        if not gone and not come:
            return
        around = self._namespaces[namespace]
        for name, labels in self._instances.get(namespace, {}).items():
            left = [each for each in gone if each.selectors.suit(labels)]
            joined = [each for each in come if each.selectors.suit(labels)]
            if not left and not joined:
                continue
            self._match(left, joined, touched)
            key = namespace, name
            winner = self._winners[key]
            if winner in left:
                winner = self._index.winner(labels, around)
            else:
                winner = min(joined if winner is None else [winner, *joined], key=_rank, default=None)
            self._award(key, winner, touched)

    def _standing(self, key: Key) -> tuple[RankedPolicy, ...] | None:
        """What an instance matches; None for one that is not there or not to be decided."""
        around = self._namespaces.get(key[0])
        labels = self._instances.get(key[0], {}).get(key[1])
        return None if around is None or labels is None else self._index.candidates(labels, around)

    def _stand(
        self,
        key: Key,
        before: tuple[RankedPolicy, ...] | None,
        after: tuple[RankedPolicy, ...] | None,
        touched: Touched,
    ) -> None:
        self._match(before or (), after or (), touched)
        if after is not None:
            self._award(key, after[0] if after else None, touched)
        elif (last := self._winners.pop(key, None)) is not None:
            self._wins[last.name] -= 1
            touched.policies.add(last.name)

    def _match(self, before: Iterable[RankedPolicy], after: Iterable[RankedPolicy], touched: Touched) -> None:
        changed: Counter[str] = Counter()
        for policy in before:
            changed[policy.name] -= 1
        for policy in after:
            changed[policy.name] += 1
        for name, by in changed.items():
            if by:
                self._matches[name] += by
                touched.policies.add(name)

    def _award(self, key: Key, winner: RankedPolicy | None, touched: Touched) -> None:
        known, last = key in self._winners, self._winners.get(key)
        self._winners[key] = winner
        if known and _name(last) == _name(winner):
            return
        touched.instances.add(key)
        for policy, by in ((last, -1), (winner, 1)):
            if policy is not None:
                self._wins[policy.name] += by
                touched.policies.add(policy.name)


def _name(policy: RankedPolicy | None) -> str | None:
    return None if policy is None else policy.name


def _rank(policy: RankedPolicy) -> tuple[object, ...]:
    return policy.rank
