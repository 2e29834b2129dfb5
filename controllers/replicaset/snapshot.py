"""What a set's plan is made from: everything that was observed, frozen."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from apimachinery.label_selectors import matches
from controllers.replicaset.instance import VMI
from controllers.replicaset.naming import shortened
from kinds.replicaset import ReplicaSetSpec, ReplicaSetStatus, selection

Json = dict[str, Any]


@dataclass(frozen=True)
class ReplicaSet:
    namespace: str
    name: str
    uid: str
    generation: int
    spec: ReplicaSetSpec
    selector: Json
    status: ReplicaSetStatus
    deleting: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def stem(self) -> str:
        """What its instances are called: as the template is, as in KubeVirt, else as the set is."""
        metadata = self.spec.template.get("metadata") or {}
        given = metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-")
        return shortened(given or self.name)

    def selects(self, i: VMI) -> bool:
        return matches(self.selector, i.labels)


@dataclass(frozen=True)
class InvalidSpec:
    """A set whose spec is none: it went past admission, or past another release's. Nothing is done for it: with a
    selector that does not match what its template makes, it would make instances for ever."""

    namespace: str
    name: str
    uid: str
    generation: int
    status: ReplicaSetStatus
    problem: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@dataclass(frozen=True)
class Failure:
    """The last write that was refused, and what the API server said."""

    reason: str
    message: str


@dataclass(frozen=True)
class ReplicaSetSnapshot:
    replica_set: ReplicaSet
    owned: tuple[VMI, ...] = ()
    """all that have the set as their controller"""
    orphans: tuple[VMI, ...] = ()
    """those without a controller that the selector matches"""
    taken: frozenset[str] = frozenset()
    """names that the set could give and somebody has"""
    settled: bool = True
    """the store shows all that we wrote before"""
    failure: Failure | None = None
    burst: int = 250

    @cached_property
    def strangers(self) -> tuple[VMI, ...]:
        """Owned, and by their labels not the set's any more."""
        return tuple(i for i in self.owned if not self.replica_set.selects(i))

    @cached_property
    def members(self) -> tuple[VMI, ...]:
        """The set's, those included that are on their way out."""
        return tuple(i for i in self.owned if self.replica_set.selects(i))

    @cached_property
    def present(self) -> tuple[VMI, ...]:
        """Members and whoever is about to become one, without those that are on their way out."""
        return tuple(i for i in (*self.members, *self.orphans) if not i.deleting)

    @cached_property
    def live(self) -> tuple[VMI, ...]:
        """`status.replicas` of the document: not final."""
        return tuple(i for i in self.present if not i.final)


def parse_replica_set(document: Json) -> ReplicaSet | InvalidSpec:
    """The view of a VirtualMachineInstanceReplicaSet."""
    metadata = document["metadata"]
    key = metadata.get("namespace", ""), metadata["name"], metadata["uid"], metadata.get("generation", 0)
    try:
        status = ReplicaSetStatus.model_validate(document.get("status") or {})
    except ValidationError:
        status = ReplicaSetStatus()  # ours alone to write, and about to be written
    try:
        spec = ReplicaSetSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:
        said = "; ".join(f"spec.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return InvalidSpec(*key, status, said)
    if problem := next(iter(selection(document)), None):
        return InvalidSpec(*key, status, str(problem))
    return ReplicaSet(*key, spec, spec.selector.json(), status, metadata.get("deletionTimestamp") is not None)


def by_namespace(s: ReplicaSet | InvalidSpec) -> Iterator[Hashable]:
    """Index of the sets that may adopt."""
    yield s.namespace
