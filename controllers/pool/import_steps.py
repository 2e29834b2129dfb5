"""What the import of a pool of KubeVirt observes, and its writes."""

from dataclasses import dataclass, field, replace
from typing import Literal

from controllers.pool.kubevirt_pools import KUBEVIRT_POOLS
from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.owner_references import controller_of, controller_reference
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, PVCS, VMIS, VMS, Resource

RIGHTS = (
    (KUBEVIRT_POOLS, ("get", "patch", "delete")),
    (POOLS, ("get", "create", "patch", "delete")),
    (CONTROLLER_REVISIONS, ("list", "create", "patch", "delete")),
    (VMS, ("list", "patch")),
    (VMIS, ("list", "patch")),
    (PVCS, ("list", "patch", "delete")),
)
"""The rights that the command needs. It has those of the user who runs it."""
RETURN_RIGHTS = (*RIGHTS, (KUBEVIRT_POOLS, ("create",)))
"""The rights that the way back from a completed import needs."""


@dataclass(frozen=True)
class Write:
    verb: Literal["create", "patch", "delete"]
    resource: Resource
    name: str
    why: str
    body: Json = field(default_factory=dict)
    uid: str = ""
    propagation: str = "Background"

    def __str__(self) -> str:
        return f"{self.verb} {self.resource.kind} {self.name}: {self.why}"


@dataclass(frozen=True)
class Wait:
    """No write is next until another controller has acted."""

    reason: str


class CannotImport(Exception):
    """The import cannot begin or continue. Each problem is a sentence for the user."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Observed:
    namespace: str
    name: str
    source: Json | None = None
    """the pool of KubeVirt"""
    target: Json | None = None
    """the pool of Poolhouse"""
    revisions: tuple[Json, ...] = ()
    """the ControllerRevisions of the namespace"""
    vms: tuple[Json, ...] = ()
    vmis: tuple[Json, ...] = ()
    claims: tuple[Json, ...] = ()
    """the PersistentVolumeClaims"""
    served: str = ""
    """the version of KubeVirt's pools that the API server has; empty if it has none"""

    @property
    def record(self) -> Json | None:
        found = (each for each in self.revisions if each["metadata"]["name"] == record_name(self.name))
        return next(found, None)

    @property
    def return_record(self) -> Json | None:
        found = (each for each in self.revisions if each["metadata"]["name"] == return_record_name(self.name))
        return next(found, None)

    @property
    def returns(self) -> bool:
        """Whether the way back from a completed import has begun, and is not complete."""
        returning = self.target and at(self.target, "metadata", "annotations", meta.RETURNING)
        return self.return_record is not None or bool(returning)

    @property
    def not_served(self) -> str:
        """Why there can be no pool of KubeVirt, or an empty string."""
        return "" if self.served else f"the cluster does not have KubeVirt's pools ({KUBEVIRT_POOLS.group})"

    @property
    def both_gone(self) -> str:
        return ", and ".join(filter(None, (f"both pools {self.name} are gone", self.not_served)))

    def owned(self, uid: str) -> list[Json]:
        return [each for each in self.vms if (controller_of(each) or {}).get("uid") == uid]

    @property
    def vmis_by_name(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self.vmis}


def kubevirt_resource(source: Json) -> Resource:
    """KubeVirt's pools in the version in which the pool was read."""
    return replace(KUBEVIRT_POOLS, version=source["apiVersion"].rpartition("/")[2])


def kubevirt_owner(source: Json) -> Json:
    metadata = source["metadata"]
    return controller_reference(source["apiVersion"], KUBEVIRT_POOLS.kind, metadata["name"], metadata["uid"])


def not_paused(source: Json) -> Wait | None:
    """Why KubeVirt's controller may still act on its paused pool."""
    conditions = at(source, "status", "conditions") or ()
    if any(each.get("type") == "ReplicaPaused" and each.get("status") == "True" for each in conditions):
        return None
    return Wait("KubeVirt's controller has not confirmed the pause")


def not_seen(source: Json, members: int) -> Wait | None:
    """Why KubeVirt's pool must not be resumed yet. Its controller would create VMs in place of those that it has not
    seen, and delete as many afterwards."""
    seen = at(source, "status", "replicas") or 0
    if (waits := not_paused(source)) is None and seen != members:
        return Wait(f"KubeVirt's controller counts {seen} of {count_noun(members, 'VM')}")
    return waits


def delete_source(source: Json) -> list[Write] | Wait:
    """Deletes KubeVirt's pool when all its VMs have the other controller."""
    metadata = source["metadata"]
    if metadata.get("deletionTimestamp"):
        return Wait("KubeVirt's pool is being deleted")
    why = "delete KubeVirt's pool, which owns no VM"
    return [Write("delete", kubevirt_resource(source), metadata["name"], why, {}, metadata["uid"], "Orphan")]


def create_revision(
    observed: Observed, name: str, data: Json, why: str, *, number: int = 0, owner: Json | None = None
) -> Write:
    body = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"namespace": observed.namespace, "name": name, **({"ownerReferences": [owner]} if owner else {})},
        "revision": number,
        "data": data,
    }
    return Write("create", CONTROLLER_REVISIONS, name, why, body)


def record_name(pool: str) -> str:
    return f"{pool}-imported-from-kubevirt"


def return_record_name(pool: str) -> str:
    return f"{pool}-returned-to-kubevirt"


def vmis(observed: Observed, uid: str) -> list[Json]:
    """The VMIs of the VMs that the pool with the UID owns."""
    known = observed.vmis_by_name
    return [known[name] for vm in observed.owned(uid) if (name := vm["metadata"]["name"]) in known]


def change_controller(vm: Json, owner: Json, changes: Json, labels: Json, why: str) -> Write:
    """Changes the controller and other metadata of a VM, and the labels of its template, unless the VM has changed
    since it was observed."""
    metadata = vm["metadata"]
    others = (each for each in metadata.get("ownerReferences") or () if not each.get("controller"))
    changed = {**identity(metadata), "ownerReferences": [*others, owner], **changes}
    body = {"metadata": changed, "spec": {"template": {"metadata": {"labels": labels}}}}
    return Write("patch", VMS, metadata["name"], why, body)


def identity(metadata: Json) -> Json:
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
