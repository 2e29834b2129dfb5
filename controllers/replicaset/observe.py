"""The stores of replica sets, and the snapshot of a set as the input of its plan."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from sys import intern

from pydantic import ValidationError

from controllers.sets.write_batches import Failure
from controllers.shared.decisions import last_manager
from controllers.shared.invalid_spec import InvalidSpec, describe, parse_status
from controllers.shared.names import base_name, truncated
from controllers.shared.replica_limits import Excess, excess, unknown_limit
from controllers.shared.sources import Source
from controllers.shared.vmi import VMI, ObjectView, group_kind, parse_vmi
from poolhouse.api.apimachinery.label_selectors import matches
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.checks import replicaset
from poolhouse.api.kinds.replicaset import REPLICA_SET, ReplicaSetSpec, ReplicaSetStatus
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import VMIS, Key, Resource
from poolhouse.runtime.store import Store

InvalidReplicaSet = InvalidSpec[ReplicaSetStatus]


@dataclass(frozen=True)
class ReplicaSet(ObjectView):
    generation: int
    spec: ReplicaSetSpec
    selector: Json
    status: ReplicaSetStatus
    deleting: bool = False
    replicas_by: str = ""
    """the client that last set `spec.replicas`"""

    @property
    def base_name(self) -> str:
        """The prefix of VMI names: the template's name as in KubeVirt, or the set's name."""
        metadata = self.spec.template.get("metadata") or {}
        given = metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-")
        return truncated(given or self.name)

    def selects(self, vmi: VMI) -> bool:
        return matches(self.selector, vmi.labels)


@dataclass(frozen=True)
class ReplicaSetSnapshot:
    replica_set: ReplicaSet
    """The set. If its replicas exceed the limit of the namespace, its spec has those that the controller works
    towards."""
    owned: tuple[VMI, ...] = ()
    unowned: tuple[VMI, ...] = ()
    """VMIs of the namespace that a replica set can adopt. The plan compares them with the selector, because many would
    stop the event loop."""
    taken_names: frozenset[str] = frozenset()
    """VMI names that the set's next names must not repeat."""
    synced: bool = True
    """Whether the stores show all previous writes."""
    failure: Failure | None = None
    excess: Excess | None = None
    """The replicas of the stored spec above the limit of the namespace."""
    burst: int = 250

    @cached_property
    def orphans(self) -> tuple[VMI, ...]:
        """VMIs that the set can adopt."""
        return tuple(vmi for vmi in self.unowned if self.replica_set.selects(vmi))

    @cached_property
    def unmatched(self) -> tuple[VMI, ...]:
        """Owned VMIs that the selector no longer matches."""
        return tuple(vmi for vmi in self.owned if not self.replica_set.selects(vmi))

    @cached_property
    def members(self) -> tuple[VMI, ...]:
        return tuple(vmi for vmi in self.owned if self.replica_set.selects(vmi))

    @cached_property
    def present(self) -> tuple[VMI, ...]:
        """Members and VMIs to adopt, except VMIs that are being deleted."""
        return tuple(vmi for vmi in (*self.members, *self.orphans) if not vmi.deleting)

    @cached_property
    def active(self) -> tuple[VMI, ...]:
        """VMIs that have not ended: `status.replicas` of the design document."""
        return tuple(vmi for vmi in self.present if not vmi.final)


def parse_replica_set(document: Json) -> ReplicaSet | InvalidReplicaSet:
    metadata = document["metadata"]
    key = metadata.get("namespace", ""), metadata["name"], metadata["uid"], metadata.get("generation", 0)
    status = parse_status(ReplicaSetStatus, document)
    try:
        spec = ReplicaSetSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:
        return InvalidSpec(*key, status, describe(error))
    # A set whose selector does not match its template would create VMIs without end.
    if problem := next(iter(replicaset.selector(document)), None):
        return InvalidSpec(*key, status, str(problem))
    client = intern(last_manager(metadata, "spec", "replicas"))
    return ReplicaSet(*key, spec, spec.selector.json(), status, metadata.get("deletionTimestamp") is not None, client)


REPLICA_SETS = Resource.of(REPLICA_SET)


def parse_replica(document: Json) -> VMI:
    """The view of a VMI. A VMI of another controller is reduced to its name, so that its changes cause no events."""
    owner = controller_of(document)
    if owner is None or group_kind(owner) == f"{REPLICA_SET.kind}.{REPLICA_SET.group}":
        return parse_vmi(document)
    metadata = document["metadata"]
    name, uid = metadata["name"], metadata.get("uid", "")
    return VMI(metadata.get("namespace", ""), name, uid, owner_uid=owner.get("uid", ""))


def is_orphan(vmi: VMI) -> bool:
    """Whether a replica set can adopt the VMI."""
    return not vmi.owner_uid and not vmi.deleting and not vmi.final


def by_owner(vmi: VMI) -> Iterator[Hashable]:
    """With the namespace: a VMI of another namespace may name any UID as its owner, until it is garbage-collected."""
    if vmi.owner_name:
        yield vmi.namespace, vmi.owner_uid


def orphans_by_namespace(vmi: VMI) -> Iterator[Hashable]:
    if is_orphan(vmi):
        yield vmi.namespace


def by_base_name(vmi: VMI) -> Iterator[Hashable]:
    """Index of VMIs by the prefix of their name, for any owner."""
    if name := base_name(vmi.name):
        yield vmi.namespace, name


SET_SOURCE: Source[ReplicaSet | InvalidReplicaSet] = Source(
    REPLICA_SETS, parse_replica_set, {"namespace": lambda found: [found.namespace]}
)
VMI_SOURCE = Source(
    VMIS, parse_replica, {"owner": by_owner, "orphans": orphans_by_namespace, "base_name": by_base_name}
)


@dataclass(frozen=True)
class Stores:
    """The stores of all watched objects. By default, the stores are empty."""

    sets: Store[ReplicaSet | InvalidReplicaSet] = field(default_factory=SET_SOURCE.store)
    vmis: Store[VMI] = field(default_factory=VMI_SOURCE.store)
    replica_limit: Callable[[str], int | None] = unknown_limit
    """Returns the replica limit of a namespace; None if it is unknown."""

    def set_of(self, vmi: VMI) -> ReplicaSet | InvalidReplicaSet | None:
        """The set that owns the VMI."""
        found = self.sets.get((vmi.namespace, vmi.owner_name))
        return found if found is not None and found.uid == vmi.owner_uid else None


async def list_stores(api: Api, namespace: str) -> Stores:
    """Fills the stores from lists, with the caller's own rights. Raises the API server's error."""
    return Stores(await SET_SOURCE.list(api, namespace), await VMI_SOURCE.list(api, namespace))


def observe(
    stores: Stores, key: Key, *, synced: bool, failure: Failure | None, burst: int
) -> ReplicaSetSnapshot | InvalidReplicaSet | None:
    """The snapshot of the set, or None for an unknown set. The cost depends only on this set and on the orphans, of
    which it looks at none."""
    found = stores.sets.get(key)
    if not isinstance(found, ReplicaSet):
        return found
    beyond = excess(found.spec.replicas, stores.replica_limit(found.namespace), found.status)
    if beyond is not None:
        found = replace(found, spec=found.spec.model_copy(update={"replicas": beyond.replicas}))
    return ReplicaSetSnapshot(
        replica_set=found,
        owned=tuple(stores.vmis.by("owner", (found.namespace, found.uid))),
        unowned=tuple(stores.vmis.by("orphans", found.namespace)),
        taken_names=frozenset(vmi.name for vmi in stores.vmis.by("base_name", (found.namespace, found.base_name))),
        synced=synced,
        failure=failure,
        excess=beyond,
        burst=burst,
    )
