"""Which MigrationPolicy a VirtualMachineInstance obeys, and why. Asked by admission, controllers and people alike.

A policy matches when *every* label of its selectors is there, so how many labels match and which ones is the same for
every VMI that it matches. Precedence is therefore one fixed order of the policies, and the winner of a VMI is the first
policy in it that matches:

    1. more labels                        the most detailed policy
    2. the label keys, sorted, that come first in lexicographic order (both selectors' together)
    3. more of the labels on the VMI      the same keys, told apart by where they are
    4. the name                           which is unique, so the order is total

The design document has the first two; the others settle what it leaves open. A value "" stands for any value. A policy
without a single label matches nothing; one empty selector constrains nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from apimachinery.unstructured import at
from kinds.checks.migrationpolicy import INSTANCE, NAMESPACE, match_labels

Labels = Mapping[str, str]
Scope = Literal["instance", "namespace"]
ANY = ""


@dataclass(frozen=True)
class Selectors:
    """Labels that must be there, sorted: equal selectors are equal values."""

    instance: tuple[tuple[str, str], ...] = ()
    namespace: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, instance: Labels | None = None, namespace: Labels | None = None) -> Selectors:
        return cls(tuple(sorted((instance or {}).items())), tuple(sorted((namespace or {}).items())))

    def __len__(self) -> int:
        return len(self.instance) + len(self.namespace)

    def __iter__(self) -> Iterator[tuple[Scope, str, str]]:
        yield from (("instance", key, value) for key, value in self.instance)
        yield from (("namespace", key, value) for key, value in self.namespace)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(sorted(key for _, key, _ in self))

    def match(self, instance: Labels, namespace: Labels) -> bool:
        return self.reach(namespace) and self.suit(instance)

    def reach(self, namespace: Labels) -> bool:
        """Whether a VMI of such a namespace could match."""
        return bool(self) and _hold(self.namespace, namespace)

    def suit(self, instance: Labels) -> bool:
        """Whether such a VMI matches, in a namespace within reach."""
        return _hold(self.instance, instance)

    def overlap(self, other: Selectors) -> bool:
        """Whether some VMI could match both."""
        return (
            bool(self)
            and bool(other)
            and _agree(dict(self.instance), other.instance)
            and _agree(dict(self.namespace), other.namespace)
        )


@dataclass(frozen=True)
class RankedPolicy:
    """A policy, as far as precedence goes."""

    name: str
    selectors: Selectors
    created: str = ""
    """creationTimestamp; empty for one that does not exist yet, which is younger than all that do"""

    @cached_property
    def rank(self) -> tuple[int, tuple[str, ...], int, str]:
        """The lower wins."""
        return -len(self.selectors), self.selectors.keys, -len(self.selectors.instance), self.name


def ranked_policy(document: Any) -> RankedPolicy:
    """The policy as far as precedence goes, of any document; what is no label in it is left out."""
    name, created = at(document, "metadata", "name"), at(document, "metadata", "creationTimestamp")
    return RankedPolicy(
        name if isinstance(name, str) else "",
        Selectors.of(match_labels(document, INSTANCE), match_labels(document, NAMESPACE)),
        created if isinstance(created, str) else "",
    )


def candidates(policies: Iterable[RankedPolicy], instance: Labels, namespace: Labels) -> tuple[RankedPolicy, ...]:
    """The policies that match, in the order of precedence: the first one is obeyed."""
    return tuple(sorted((p for p in policies if p.selectors.match(instance, namespace)), key=lambda p: p.rank))


def superseded(policies: Iterable[RankedPolicy]) -> dict[str, str]:
    """Names of policies that have the same selectors as an elder one, with that elder's name. They match nothing.

    Of policies of the same second the first name is the elder. So of two that were created at the same moment, each by
    an administrator who could not see the other's, everybody marks the same one.
    """
    elders: dict[Selectors, RankedPolicy] = {}
    found = {}
    for policy in sorted(policies, key=lambda p: (not p.created, p.created, p.name)):
        elder = elders.setdefault(policy.selectors, policy)
        if elder is not policy and policy.selectors:
            found[policy.name] = elder.name
    return found


def reason(first: RankedPolicy, second: RankedPolicy) -> str:
    """Why the first goes before the second where both match."""
    one, other = first.selectors, second.selectors
    if len(one) != len(other):
        return f"it matches more labels, {len(one)} to {len(other)}"
    for key, later in zip(one.keys, other.keys, strict=True):
        if key != later:
            return f"both match {len(one)}, and its key {key!r} comes before {later!r}"
    if len(one.instance) != len(other.instance):
        return (
            f"the keys are the same, and more of its labels are the VMI's, {len(one.instance)} to {len(other.instance)}"
        )
    return f"the keys are the same, and its name {first.name!r} comes before {second.name!r}"


def missing(
    selectors: Selectors, instance: Labels, namespace: Labels
) -> tuple[tuple[Scope, str, str, str | None], ...]:
    """Labels for which the policy does not match: scope, key, the value that it wants and the one that is there."""
    there: dict[Scope, Labels] = {"instance": instance, "namespace": namespace}
    return tuple(
        (scope, key, value, there[scope].get(key))
        for scope, key, value in selectors
        if key not in there[scope] or value not in (ANY, there[scope][key])
    )


def is_active(instance: Any) -> bool:
    """Whether a VMI (its document) obeys any policy at all: one that is being deleted or has ended moves no more."""
    return not at(instance, "metadata", "deletionTimestamp") and at(instance, "status", "phase") not in _ENDED


_ENDED = ("Succeeded", "Failed")


class WinnerIndex:
    """`candidates` for one set of policies and many VMIs. Superseded policies are left out.

    VMIs of alike namespaces share a `_Near`: the policies that can match there at all. In it each policy is filed under
    the one of its VMI labels that the fewest ask for. A VMI looks under its own labels, and holds only what it finds
    there against itself.
    """

    def __init__(self, policies: Iterable[RankedPolicy]) -> None:
        policies = tuple(policies)
        self.superseded = superseded(policies)
        self._kept = sorted(
            (p for p in policies if p.selectors and p.name not in self.superseded), key=lambda p: p.rank
        )
        asked: dict[str, set[str | None]] = {}
        for policy in self._kept:
            for key, value in policy.selectors.namespace:
                asked.setdefault(key, {None}).add(value)
        self.namespace_keys = tuple(sorted(asked))
        """the label keys of namespaces that any policy looks at"""
        # Values that no policy asks for are one: namespaces come and go, and each may have a value of its own.
        self._asked = tuple((key, frozenset(asked[key])) for key in self.namespace_keys)
        self._near: dict[tuple[str | None, ...], _Near] = {}

    def candidates(self, instance: Labels, namespace: Labels) -> tuple[RankedPolicy, ...]:
        near = self._within(namespace)
        return tuple([near.policies[place] for place in sorted(near.places(instance))])

    def winner(self, instance: Labels, namespace: Labels) -> RankedPolicy | None:
        """The first of the candidates, found without the others."""
        near = self._within(namespace)
        first = min(near.places(instance), default=None)
        return None if first is None else near.policies[first]

    def _within(self, namespace: Labels) -> _Near:
        alike = tuple([value if (value := namespace.get(key)) in asked else ANY for key, asked in self._asked])
        near = self._near.get(alike)
        if near is None:
            near = self._near[alike] = _Near(p for p in self._kept if p.selectors.reach(namespace))
        return near


class _Near:
    """Policies whose namespace selectors hold, in the order of precedence."""

    def __init__(self, policies: Iterable[RankedPolicy]) -> None:
        self.policies = tuple(policies)
        asked = Counter(label for policy in self.policies for label in policy.selectors.instance)
        # What asks nothing of the VMI matches every one.
        self._always = [place for place, policy in enumerate(self.policies) if not policy.selectors.instance]
        exact: dict[str, dict[str, list[int]]] = {}
        self._any: dict[str, list[int]] = {}
        for place, policy in enumerate(self.policies):
            if policy.selectors.instance:
                key, value = min(policy.selectors.instance, key=lambda label: (asked[label], label))
                self._any.setdefault(key, [])
                (self._any[key] if value == ANY else exact.setdefault(key, {}).setdefault(value, [])).append(place)
        # Whoever looks under a value finds those that take any value as well: one look for each label.
        self._files = {
            key: {value: [*places, *others] for value, places in exact.get(key, {}).items()}
            for key, others in self._any.items()
        }

    def places(self, instance: Labels) -> list[int]:
        """Of those that match, in no order."""
        found = self._always.copy()
        for key, value in instance.items():
            file = self._files.get(key)
            if file is not None:
                near = file.get(value, self._any[key])
                found += [place for place in near if self.policies[place].selectors.suit(instance)]
        return found


def _hold(wanted: tuple[tuple[str, str], ...], labels: Labels) -> bool:
    for key, value in wanted:
        found = labels.get(key)
        if found is None or (found != value and value != ANY):
            return False
    return True


def _agree(one: Labels, other: Iterable[tuple[str, str]]) -> bool:
    """No key is asked for with two different values."""
    return all(ANY in (value, one.get(key, ANY)) or one[key] == value for key, value in other)
