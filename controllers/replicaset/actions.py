"""What a replica set can do, and the VMI that it creates."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace

from controllers.replicaset.observe import REPLICA_SETS, ReplicaSet, ReplicaSetSnapshot
from controllers.replicaset.reasons import ReplicaSetReason
from controllers.sets import actions
from controllers.shared.vmi import parse_vmi
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import VMIS


class _Action(actions.Action, reasons=ReplicaSetReason):
    pass


@dataclass(frozen=True)
class Create(_Action, past="created", creates="name"):
    name: str
    reason: str
    attempt: int = 0
    """the number of consecutive predecessors that ended early"""


@dataclass(frozen=True)
class _OnVMI(_Action):
    name: str
    uid: str
    resource_version: str
    reason: str


class Delete(_OnVMI, past="deleted", deletes="uid"):
    pass


class Adopt(_OnVMI, past="adopted", creates="name"):
    """Adds the set's owner reference."""


class Release(_OnVMI, past="released", deletes="uid"):
    """Removes the set's owner reference. The VMI keeps running, and the store drops it from the set."""


Action = Create | Delete | Adopt | Release


def after(snapshot: ReplicaSetSnapshot, actions: Iterable[Action]) -> ReplicaSetSnapshot:
    """The snapshot after the actions have succeeded."""
    found, names = snapshot.replica_set, set(snapshot.taken_names)
    owned, orphans = ({vmi.uid: vmi for vmi in vmis} for vmis in (snapshot.owned, snapshot.orphans))
    for action in actions:
        if isinstance(action, Create):
            document = build_vmi(found, action)
            document["metadata"]["uid"] = uid = f"{action.name} (simulated)"
            owned[uid] = replace(parse_vmi(document), phase="Running", ready=True)
            names.add(action.name)
        elif isinstance(action, Adopt):
            if (orphan := orphans.pop(action.uid, None)) is not None:
                owned[action.uid] = replace(orphan, owner_uid=found.uid, owner_name=found.name)
        else:
            owned.pop(action.uid, None)
            if isinstance(action, Delete):
                names.discard(action.name)
    return replace(snapshot, owned=tuple(owned.values()), unowned=tuple(orphans.values()), taken_names=frozenset(names))


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
