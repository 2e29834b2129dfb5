"""The page of a VM: what it is, why it is so, and what the controller does next with it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.simulate import MAX_STEPS_OF_ANSWER, rows, simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.replicaset.observe import ReplicaSetSnapshot
from controllers.replicaset.simulate import rows as rows_of_set
from controllers.replicaset.simulate import simulate as simulate_set
from controllers.sets.simulation import MAX_ACTIONS_OF_ANSWER
from controllers.shared.vm import VM
from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.cli.parameters import short_name
from poolhouse.cli.vm_facts import detached, pool_facts, replica_set_facts, warm_state
from poolhouse.console import words
from poolhouse.console.cluster_state import ClusterState
from poolhouse.console.computations import TooExpensive
from poolhouse.console.page import object_path
from poolhouse.console.words import STATE_WORDS, vm_state, vmi_state


def head(state: ClusterState, document: Json, short: str) -> Json:
    metadata, now = document["metadata"], state.now()
    key = metadata["namespace"], metadata["name"]
    view, vmi = state.pools.vms.get(key), state.pools.vmis.get(key)
    if view is not None and (pool := state.pools.owner_of(view)) is not None:
        view = next((each for each in state.pools.vms_of(pool) if each.key == key), view)
    found = vm_state(view) if view is not None else vmi_state(vmi) if vmi is not None else "starting"
    controller = controller_of(document)
    return {
        "short": short,
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "state": found,
        "words": STATE_WORDS[found],
        "age": words.age(metadata.get("creationTimestamp"), now),
        "facts": [(name, value) for name, value in _facts(document, view, vmi) if value],
        "owner": _link(metadata["namespace"], controller) if controller else None,
        "hardware": f"/hardware{object_path('vm', metadata['namespace'], metadata['name'])[3:]}"
        if short == "vm"
        else "",
    }


def _facts(document: Json, view: VM | None, vmi: VMI | None) -> Iterator[tuple[str, str]]:
    """The rows of the table, some of them empty."""
    status, labels = document.get("status") or {}, document["metadata"].get("labels") or {}
    yield "Status", at(status, "printableStatus") or at(status, "phase") or ""
    if view is not None:
        yield "Run strategy", view.run_strategy
    if vmi is not None:
        yield "Node", vmi.node
        yield "Addresses", ", ".join(vmi.addresses)
    yield "Revision", labels.get(meta.REVISION, "")
    if view is not None:
        yield "Scale-in", view.scale_in
    if vmi is not None:
        yield "Migration policy", vmi.labels.get(meta.MIGRATION_POLICY, "")
    if view is not None:
        yield "Disks", ", ".join(view.disks)


def _link(namespace: str, controller: Json) -> Json:
    short = short_name(controller["kind"])
    known = short != controller["kind"].lower() or short == "vm"
    return {
        "name": f"{short}/{controller['name']}",
        "path": object_path(short, namespace, controller["name"]) if known else "",
    }


def owner_name(document: Json) -> str:
    """The pool or replica set whose events mention the VM."""
    controller = controller_of(document)
    return str(controller["name"]) if controller else str((document["metadata"].get("labels") or {}).get(meta.POOL, ""))


async def why(state: ClusterState, document: Json, short: str) -> Json:
    """The facts about the VM, and the controller's next actions on it."""
    try:
        return {"problem": "", **await _why(state, document, short)}
    except TooExpensive as error:
        return {"facts": [], "next": [], "problem": error.format_message()}


async def _why(state: ClusterState, document: Json, short: str) -> Json:
    metadata, controller, now = document["metadata"], controller_of(document) or {}, state.now()
    namespace, name, kind = metadata["namespace"], metadata["name"], controller.get("kind")
    owner = (namespace, str(controller.get("name")))
    if kind == POOL.kind:
        snapshot = state.pool(owner)
        if isinstance(snapshot, PoolSnapshot):
            return await state.compute(_in_pool, snapshot, name, now)
    if kind == REPLICA_SET.kind:
        replicas = state.replica_set(owner)
        if isinstance(replicas, ReplicaSetSnapshot):
            return await state.compute(_in_replica_set, replicas, name, now)
    pool = str((metadata.get("labels") or {}).get(meta.POOL, ""))
    facts = [*warm_state(document), *detached(document, pool)] if short == "vm" else []
    return {"facts": facts or ["no pool or replica set controls it"], "next": []}


def _in_pool(snapshot: PoolSnapshot, name: str, now: datetime) -> Json:
    found = rows(simulate(snapshot, now, MAX_STEPS_OF_ANSWER, MAX_ACTIONS_OF_ANSWER))
    return {"facts": list(pool_facts(snapshot, name, now)), "next": [each for each in found if each["vm"] == name]}


def _in_replica_set(snapshot: ReplicaSetSnapshot, name: str, now: datetime) -> Json:
    found = rows_of_set(snapshot, simulate_set(snapshot, now, MAX_ACTIONS_OF_ANSWER))
    facts = list(replica_set_facts(snapshot, name))
    return {"facts": facts, "next": [each for each in found if each["vm"] == name]}
