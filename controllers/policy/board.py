"""Who obeys whom. Told of one change at a time, it decides again what that change can affect, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kinds.precedence import Contender, Index, Labels, Selectors
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
    decided, because labels that are not known must not look like labels that are not there."""

    def __init__(self) -> None:
        self._policies: dict[str, Contender] = {}
        self._namespaces: dict[str, Labels] = {}
        self._instances: dict[str, dict[str, Labels]] = {}
        self._index = Index(())
        self._active: dict[str, Selectors] = {}
        self._decided: dict[Key, tuple[str, ...]] = {}
        # Thousands of VMIs match the same policies: one tuple for all of them.
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._wins: Counter[str] = Counter()
        self._losses: Counter[str] = Counter()

    def load(
        self,
        policies: Iterable[Contender],
        namespaces: Mapping[str, Labels],
        instances: Iterable[tuple[Key, Labels]],
    ) -> Touched:
        """Everything at once, into an empty board: each instance is decided once, not once for every policy."""
        self._namespaces.update(namespaces)
        touched = self._entered({policy.name: policy for policy in policies})
        for key, labels in instances:
            self._instances.setdefault(key[0], {})[key[1]] = labels
            self._decide(key, labels, touched)
        return touched

    def policy(self, name: str, contender: Contender | None) -> Touched:
        """A policy as it is now; None when it is gone or may not take part."""
        if self._policies.get(name) == contender:
            return Touched()
        policies = dict(self._policies)
        if contender is None:
            del policies[name]
        else:
            policies[name] = contender
        return self._entered(policies)

    def namespace(self, name: str, labels: Labels | None) -> Touched:
        touched = Touched()
        before = self._namespaces.get(name)
        if labels is None:
            # Its instances are deleted before it is.
            self._namespaces.pop(name, None)
            return touched
        self._namespaces[name] = labels
        if before is None or any(before.get(key) != labels.get(key) for key in self._index.namespace_keys):
            for instance, own in self._instances.get(name, {}).items():
                self._decide((name, instance), own, touched)
        return touched

    def instance(self, key: Key, labels: Labels | None) -> Touched:
        """An instance as it is now; None when it is gone, going, or has run its course."""
        touched = Touched()
        namespace, name = key
        if labels is None:
            self._instances.get(namespace, {}).pop(name, None)
            self._count(self._decided.pop(key, ()), (), touched)
        else:
            self._instances.setdefault(namespace, {})[name] = labels
            self._decide(key, labels, touched)
        return touched

    def decided(self, key: Key) -> bool:
        return key in self._decided

    def winner(self, key: Key) -> str | None:
        """The policy that an instance obeys; None for none, or where nothing is decided."""
        found = self._decided.get(key)
        return found[0] if found else None

    def elder(self, name: str) -> str | None:
        """The policy that has the same selectors as this one and is older, if there is one."""
        return self._index.superseded.get(name)

    def wins(self, name: str) -> int:
        return self._wins[name]

    def losses(self, name: str) -> int:
        return self._losses[name]

    def __len__(self) -> int:
        return len(self._decided)

    def _entered(self, policies: dict[str, Contender]) -> Touched:
        before, lost = self._active, self._index.superseded
        self._policies = policies
        self._index = Index(policies.values())
        lost_now = self._index.superseded
        self._active = {p.name: p.selectors for p in policies.values() if p.selectors and p.name not in lost_now}
        self._shared.clear()
        changed = {name for name in before.keys() | self._active if before.get(name) != self._active.get(name)}
        judged = {name for name in lost.keys() | lost_now if lost.get(name) != lost_now.get(name)}
        touched = Touched(policies=changed | judged)
        involved = [found for name in changed for found in (before.get(name), self._active.get(name)) if found]
        if involved:
            self._decide_all(involved, touched)
        return touched

    def _decide_all(self, involved: list[Selectors], touched: Touched) -> None:
        """Decides again for the instances that any of these selectors match, and only for those."""
        for namespace, instances in self._instances.items():
            around = self._namespaces.get(namespace)
            if around is None:
                continue
            near = [each for each in involved if each.reach(around)]
            if not near:
                continue
            for name, labels in instances.items():
                if any(each.match(labels, around) for each in near):
                    self._decide((namespace, name), labels, touched)

    def _decide(self, key: Key, labels: Labels, touched: Touched) -> None:
        around = self._namespaces.get(key[0])
        if around is None:
            return
        before = self._decided.get(key)
        found = tuple(policy.name for policy in self._index.candidates(labels, around))
        if found == before:
            return
        found = self._decided[key] = self._shared.setdefault(found, found)
        self._count(before or (), found, touched)
        if before is None or before[:1] != found[:1]:
            touched.instances.add(key)

    def _count(self, before: tuple[str, ...], after: tuple[str, ...], touched: Touched) -> None:
        for found, by in ((before, -1), (after, 1)):
            for place, name in enumerate(found):
                (self._losses if place else self._wins)[name] += by
        if before[:1] != after[:1]:
            touched.policies.update(before[:1], after[:1])
        touched.policies.update(set(before[1:]) ^ set(after[1:]))
