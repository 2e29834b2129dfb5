"""Simulates the plans of a replica set until no actions are left, for users and for admission."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from apimachinery.unstructured import Json
from controllers.replicaset.apply import build_vmi
from controllers.replicaset.observe import InvalidReplicaSet, ReplicaSetSnapshot, Stores, observe, parse_replica_set
from controllers.replicaset.plan import Action, Adopt, Create, Delete, Release, plan
from controllers.shared import simulation
from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.vmi import VMI, parse_vmi

MAX_STEPS = 100


def simulate(snapshot: ReplicaSetSnapshot, now: datetime, max_actions: int | None = None) -> Iterator[Json]:
    """Rows with `step`, `action`, `vm` and `reason`. VMI names depend on the set's UID, so a new set has only a name
    pattern."""
    snapshot = replace(snapshot, synced=True, failure=None)
    found = simulation.simulate(snapshot, now, plan, after, MAX_STEPS, max_actions)
    replica_set = snapshot.replica_set
    for number, step in enumerate(found.steps, start=1):
        for action in step.actions:
            unnamed = not replica_set.uid and isinstance(action, Create)
            name = f"{replica_set.base_name}-*" if unnamed else action.name
            yield {"step": number, "action": action.verb, "vm": name, "reason": action.reason}


def hypothetical_snapshot(stores: Stores, document: Json, burst: int) -> ReplicaSetSnapshot | InvalidReplicaSet:
    """The snapshot of the set in the document, with the existing VMIs."""
    metadata = document["metadata"]
    known = stores.sets.get((metadata.get("namespace", ""), metadata["name"]))
    # The UID of a dry run is not the UID that the set will have.
    view = parse_replica_set({**document, "metadata": {**metadata, "uid": known.uid if known is not None else ""}})
    only = Stores(vmis=stores.vmis)
    only.sets.put(view.key, view)
    found = observe(only, view.key, synced=True, failure=None, burst=burst)
    assert found is not None
    return found


def answer(stores: Stores, document: Json, burst: int, now: datetime) -> Json | InvalidReplicaSet:
    """The response to the webhook for the set in the document."""
    snapshot = hypothetical_snapshot(stores, document, burst)
    if isinstance(snapshot, InvalidSpec):
        return snapshot
    rows = simulate(snapshot, now, simulation.MAX_ACTIONS_OF_ANSWER)
    return {"plan": [{key: row[key] for key in ("action", "vm", "reason")} for row in rows]}


def after(action: Action, snapshot: ReplicaSetSnapshot) -> ReplicaSetSnapshot:
    """The snapshot after the action has succeeded."""
    match action:
        case Create():
            document = build_vmi(snapshot.replica_set, action)
            document["metadata"]["uid"] = f"{action.name} (simulated)"
            created = replace(parse_vmi(document), phase="Running", ready=True)
            return replace(snapshot, owned=(*snapshot.owned, created), taken_names=snapshot.taken_names | {action.name})
        case Adopt():
            uid, name = snapshot.replica_set.uid, snapshot.replica_set.name
            found = (vmi for vmi in snapshot.orphans if vmi.uid == action.uid)
            adopted = (replace(vmi, owner_uid=uid, owner_name=name) for vmi in found)
            orphans = _without(action, snapshot.orphans)
            return replace(snapshot, owned=(*snapshot.owned, *adopted), orphans=orphans)
        case Delete():
            taken = snapshot.taken_names - {action.name}
            return replace(snapshot, owned=_without(action, snapshot.owned), taken_names=taken)
        case Release():
            return replace(snapshot, owned=_without(action, snapshot.owned))


def _without(action: Adopt | Delete | Release, vmis: tuple[VMI, ...]) -> tuple[VMI, ...]:
    return tuple(vmi for vmi in vmis if vmi.uid != action.uid)
