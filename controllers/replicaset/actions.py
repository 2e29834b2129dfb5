"""What a replica set can do, and the VMI that it creates."""

import copy
from dataclasses import dataclass, replace

from controllers.replicaset.observe import REPLICA_SETS, ReplicaSet, ReplicaSetSnapshot
from controllers.replicaset.reasons import ReplicaSetReason
from controllers.sets import actions
from controllers.shared.vmi import VMI, parse_vmi
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import VMIS


class _Action(actions.Action[ReplicaSetSnapshot], reasons=ReplicaSetReason):
    pass


@dataclass(frozen=True)
class Create(_Action, past="created", creates="name"):
    name: str
    reason: str
    attempt: int = 0
    """the number of consecutive predecessors that ended early"""

    def after(self, snapshot: ReplicaSetSnapshot) -> ReplicaSetSnapshot:
        document = build_vmi(snapshot.replica_set, self)
        document["metadata"]["uid"] = f"{self.name} (simulated)"
        created = replace(parse_vmi(document), phase="Running", ready=True)
        return replace(snapshot, owned=(*snapshot.owned, created), taken_names=snapshot.taken_names | {self.name})


@dataclass(frozen=True)
class _OnVMI(_Action):
    name: str
    uid: str
    resource_version: str
    reason: str

    def without(self, vmis: tuple[VMI, ...]) -> tuple[VMI, ...]:
        return tuple(vmi for vmi in vmis if vmi.uid != self.uid)


class Delete(_OnVMI, past="deleted", deletes="uid"):
    def after(self, snapshot: ReplicaSetSnapshot) -> ReplicaSetSnapshot:
        return replace(snapshot, owned=self.without(snapshot.owned), taken_names=snapshot.taken_names - {self.name})


class Adopt(_OnVMI, past="adopted", creates="name"):
    """Adds the set's owner reference."""

    def after(self, snapshot: ReplicaSetSnapshot) -> ReplicaSetSnapshot:
        uid, name = snapshot.replica_set.uid, snapshot.replica_set.name
        found = (vmi for vmi in snapshot.orphans if vmi.uid == self.uid)
        adopted = (replace(vmi, owner_uid=uid, owner_name=name) for vmi in found)
        return replace(snapshot, owned=(*snapshot.owned, *adopted), orphans=self.without(snapshot.orphans))


class Release(_OnVMI, past="released", deletes="uid"):
    """Removes the set's owner reference. The VMI keeps running, and the store drops it from the set."""

    def after(self, snapshot: ReplicaSetSnapshot) -> ReplicaSetSnapshot:
        return replace(snapshot, owned=self.without(snapshot.owned))


Action = Create | Delete | Adopt | Release


def build_vmi(found: ReplicaSet, action: Create) -> Json:
    template = copy.deepcopy(found.spec.template)
    given = template.get("metadata") or {}
    annotations = {key: value for key, value in (given.get("annotations") or {}).items() if key != meta.ATTEMPT}
    if action.attempt:
        annotations[meta.ATTEMPT] = str(action.attempt)
    return {
        "apiVersion": VMIS.api_version,
        "kind": VMIS.kind,
        "metadata": {
            "namespace": found.namespace,
            "name": action.name,
            "labels": given.get("labels") or {},
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [owner_reference(found)],
        },
        "spec": template.get("spec") or {},
    }


def owner_reference(found: ReplicaSet) -> Json:
    return controller_reference(REPLICA_SETS.api_version, REPLICA_SETS.kind, found.name, found.uid)
