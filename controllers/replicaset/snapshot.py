"""The replica set and everything that its plan is made from, frozen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError

from apimachinery.label_selectors import matches
from apimachinery.unstructured import Json
from controllers.shared.invalid_spec import InvalidSpec, describe, parse_status
from controllers.shared.names import truncated
from controllers.shared.vmi import VMI
from controllers.shared.write_batches import Failure
from kinds.checks import replicaset
from kinds.replicaset import ReplicaSetSpec, ReplicaSetStatus

InvalidReplicaSet = InvalidSpec[ReplicaSetStatus]


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
    def base_name(self) -> str:
        """VMIs are named after the template, as in KubeVirt, or else after the set."""
        metadata = self.spec.template.get("metadata") or {}
        given = metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-")
        return truncated(given or self.name)

    def selects(self, vmi: VMI) -> bool:
        return matches(self.selector, vmi.labels)


@dataclass(frozen=True)
class ReplicaSetSnapshot:
    replica_set: ReplicaSet
    owned: tuple[VMI, ...] = ()
    """All VMIs that the set controls."""
    orphans: tuple[VMI, ...] = ()
    """VMIs without a controller that the selector matches."""
    taken_names: frozenset[str] = frozenset()
    """Names that the set could give and that a VMI has."""
    synced: bool = True
    """The stores show all previous writes."""
    failure: Failure | None = None
    burst: int = 250

    @cached_property
    def unmatched(self) -> tuple[VMI, ...]:
        """Owned VMIs whose labels the selector does not match any more."""
        return tuple(vmi for vmi in self.owned if not self.replica_set.selects(vmi))

    @cached_property
    def members(self) -> tuple[VMI, ...]:
        return tuple(vmi for vmi in self.owned if self.replica_set.selects(vmi))

    @cached_property
    def present(self) -> tuple[VMI, ...]:
        """Members and VMIs that are about to be adopted, except those that are being deleted."""
        return tuple(vmi for vmi in (*self.members, *self.orphans) if not vmi.deleting)

    @cached_property
    def active(self) -> tuple[VMI, ...]:
        """`status.replicas` of the design document: VMIs that have not ended."""
        return tuple(vmi for vmi in self.present if not vmi.final)


def parse_replica_set(document: Json) -> ReplicaSet | InvalidReplicaSet:
    metadata = document["metadata"]
    key = metadata.get("namespace", ""), metadata["name"], metadata["uid"], metadata.get("generation", 0)
    status = parse_status(ReplicaSetStatus, document)
    try:
        spec = ReplicaSetSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:
        return InvalidSpec(*key, status, describe(error))
    # With a selector that does not match its template, the set would create VMIs without end.
    if problem := next(iter(replicaset.selector(document)), None):
        return InvalidSpec(*key, status, str(problem))
    return ReplicaSet(*key, spec, spec.selector.json(), status, metadata.get("deletionTimestamp") is not None)
