"""Finds the MigrationPolicy that applies to a VMI.

A policy matches a VMI if *all* labels of its selectors match. The number of matching labels therefore does not depend
on the VMI, and the precedence is a fixed order of the policies. The first policy that matches a VMI applies:

    1. more labels in both selectors
    2. the sorted label keys that come first in lexicographic order
    3. more labels with a value, instead of "" for any value
    4. more labels in the VMI selector
    5. the name that comes first in lexicographic order

Rules 1 and 2 are those of designs/3. The others order policies with the same keys, of which the design says nothing.

The value "" matches any value. An empty selector matches everything, but a policy without any label matches nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.checks.migrationpolicy import INSTANCE, NAMESPACE, match_labels

Labels = Mapping[str, str]
Scope = Literal["instance", "namespace"]
ANY = ""


@dataclass(frozen=True)
class Selectors:
    """The required labels of a policy. They are sorted, so that equal selectors are equal values."""

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

    @cached_property
    def exact(self) -> int:
        """The number of labels whose value must match."""
        return sum(value != ANY for _, _, value in self)

    def matches(self, instance: Labels, namespace: Labels) -> bool:
        return self.matches_namespace(namespace) and self.matches_vmi(instance)

    def matches_namespace(self, namespace: Labels) -> bool:
        """Whether VMIs in a namespace with these labels can match."""
        return bool(self) and _hold(self.namespace, namespace)

    def matches_vmi(self, instance: Labels) -> bool:
        """Whether a VMI with these labels matches, if its namespace matches."""
        return _hold(self.instance, instance)

    def overlaps(self, other: Selectors) -> bool:
        """Whether a VMI can match both selectors."""
        return (
            bool(self)
            and bool(other)
            and _agree(dict(self.instance), other.instance)
            and _agree(dict(self.namespace), other.namespace)
        )


@dataclass(frozen=True)
class RankedPolicy:
    """The parts of a policy that its precedence depends on."""

    name: str
    selectors: Selectors
    created: str = ""
    """creationTimestamp; empty for a policy that is not created yet, which counts as the youngest"""

    @cached_property
    def rank(self) -> tuple[int, tuple[str, ...], int, int, str]:
        """The sort key of the precedence. The policy with the lowest rank applies."""
        required = self.selectors
        return -len(required), required.keys, -required.exact, -len(required.instance), self.name


def ranked_policy(document: Any) -> RankedPolicy:
    """Parses a document of any shape, and ignores invalid labels."""
    name, created = at(document, "metadata", "name"), at(document, "metadata", "creationTimestamp")
    return RankedPolicy(
        name if isinstance(name, str) else "",
        Selectors.of(match_labels(document, INSTANCE), match_labels(document, NAMESPACE)),
        created if isinstance(created, str) else "",
    )


def candidates(policies: Iterable[RankedPolicy], instance: Labels, namespace: Labels) -> tuple[RankedPolicy, ...]:
    """The policies that match, in the order of precedence. The first applies."""
    return tuple(sorted((p for p in policies if p.selectors.matches(instance, namespace)), key=lambda p: p.rank))


def superseded(policies: Iterable[RankedPolicy]) -> dict[str, str]:
    """The names of policies that an older policy with the same selectors supersedes, with the older policy's name. Such
    policies match nothing. If two were created in the same second, the name that comes first counts as older."""
    elders: dict[Selectors, RankedPolicy] = {}
    found = {}
    for policy in sorted(policies, key=lambda p: (not p.created, p.created, p.name)):
        elder = elders.setdefault(policy.selectors, policy)
        if elder is not policy and policy.selectors:
            found[policy.name] = elder.name
    return found


def reason(first: RankedPolicy, second: RankedPolicy) -> str:
    """Why the first policy has precedence over the second."""
    one, other = first.selectors, second.selectors
    if len(one) != len(other):
        return f"it matches more labels, {len(one)} to {len(other)}"
    for key, later in zip(one.keys, other.keys, strict=True):
        if key != later:
            return f"both match {len(one)}, and its key {key!r} comes before {later!r}"
    if one.exact != other.exact:
        return f"the keys are the same, and it requires more values, {one.exact} to {other.exact}"
    if len(one.instance) != len(other.instance):
        return (
            f"the keys are the same, and more of its labels are the VMI's, {len(one.instance)} to {len(other.instance)}"
        )
    return f"the keys are the same, and its name {first.name!r} comes before {second.name!r}"


def missing(
    selectors: Selectors, instance: Labels, namespace: Labels
) -> tuple[tuple[Scope, str, str, str | None], ...]:
    """The labels that do not match: scope, key, required value and actual value."""
    there: dict[Scope, Labels] = {"instance": instance, "namespace": namespace}
    return tuple(
        (scope, key, value, there[scope].get(key))
        for scope, key, value in selectors
        if key not in there[scope] or value not in (ANY, there[scope][key])
    )


def is_active(instance: Any) -> bool:
    """Whether a policy can apply to the VMI. A VMI that is being deleted or has ended is not migrated."""
    return not at(instance, "metadata", "deletionTimestamp") and at(instance, "status", "phase") not in _ENDED


_ENDED = ("Succeeded", "Failed")


class WinnerIndex:
    """Finds the policies that apply to many VMIs. The index ignores superseded policies.

    VMIs of namespaces with the same relevant labels share a `_NamespaceIndex` of policies that can match. The index
    contains each policy under its rarest VMI label, so that a VMI is compared only with policies under its labels.
    """

    def __init__(self, policies: Iterable[RankedPolicy]) -> None:
        policies = tuple(policies)
        self.superseded = superseded(policies)
        self._kept = sorted(
            (p for p in policies if p.selectors and p.name not in self.superseded), key=lambda p: p.rank
        )
        required: dict[str, set[str | None]] = {}
        for policy in self._kept:
            for key, value in policy.selectors.namespace:
                required.setdefault(key, {None}).add(value)
        self.namespace_keys = tuple(sorted(required))
        """keys of the namespace labels in the policies' selectors"""
        # Treats all values that no policy requires as equal, because every namespace may have a different value.
        self._required = tuple((key, frozenset(required[key])) for key in self.namespace_keys)
        self._by_namespace: dict[tuple[str | None, ...], _NamespaceIndex] = {}

    def candidates(self, instance: Labels, namespace: Labels) -> tuple[RankedPolicy, ...]:
        index = self._within(namespace)
        return tuple([index.policies[place] for place in sorted(index.places(instance))])

    def winner(self, instance: Labels, namespace: Labels) -> RankedPolicy | None:
        """The policy that applies to a VMI, the first of its `candidates`."""
        index = self._within(namespace)
        first = min(index.places(instance), default=None)
        return None if first is None else index.policies[first]

    def _within(self, namespace: Labels) -> _NamespaceIndex:
        relevant = tuple(
            [value if (value := namespace.get(key)) in required else ANY for key, required in self._required]
        )
        index = self._by_namespace.get(relevant)
        if index is None:
            index = self._by_namespace[relevant] = _NamespaceIndex(
                p for p in self._kept if p.selectors.matches_namespace(namespace)
            )
        return index


class _NamespaceIndex:
    """The policies whose namespace selectors match, in order of precedence, indexed by VMI label."""

    def __init__(self, policies: Iterable[RankedPolicy]) -> None:
        self.policies = tuple(policies)
        required = Counter(label for policy in self.policies for label in policy.selectors.instance)
        # Policies without VMI labels match every VMI.
        self._always = [place for place, policy in enumerate(self.policies) if not policy.selectors.instance]
        exact: dict[str, dict[str, list[int]]] = {}
        self._any: dict[str, list[int]] = {}
        for place, policy in enumerate(self.policies):
            if policy.selectors.instance:
                key, value = min(policy.selectors.instance, key=lambda label: (required[label], label))
                self._any.setdefault(key, [])
                (self._any[key] if value == ANY else exact.setdefault(key, {}).setdefault(value, [])).append(place)
        # The entry of a value includes policies that match any value, so that each label needs one look-up.
        self._files = {
            key: {value: [*places, *others] for value, places in exact.get(key, {}).items()}
            for key, others in self._any.items()
        }

    def places(self, instance: Labels) -> list[int]:
        """Indexes of the matching policies in `policies`, unsorted."""
        found = self._always.copy()
        for key, value in instance.items():
            file = self._files.get(key)
            if file is not None:
                candidates = file.get(value, self._any[key])
                found += [place for place in candidates if self.policies[place].selectors.matches_vmi(instance)]
        return found


def _hold(wanted: tuple[tuple[str, str], ...], labels: Labels) -> bool:
    for key, value in wanted:
        found = labels.get(key)
        if found is None or (found != value and value != ANY):
            return False
    return True


def _agree(one: Labels, other: Iterable[tuple[str, str]]) -> bool:
    """Whether no key is required with two different values."""
    return all(ANY in (value, one.get(key, ANY)) or one[key] == value for key, value in other)
