"""Simulates the plans of a replica set until no actions are left, for users and for admission."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from controllers.replicaset.actions import Create, after
from controllers.replicaset.observe import InvalidReplicaSet, ReplicaSetSnapshot, Stores, observe, parse_replica_set
from controllers.replicaset.plan import Plan, plan
from controllers.sets import simulation
from poolhouse.api.apimachinery.unstructured import Json

MAX_STEPS = 100


def simulate(
    snapshot: ReplicaSetSnapshot, now: datetime, max_actions: int | None = None
) -> simulation.Simulation[Plan]:
    """The consecutive plans of the set."""
    return simulation.simulate(replace(snapshot, synced=True, failure=None), now, plan, after, MAX_STEPS, max_actions)


def rows(snapshot: ReplicaSetSnapshot, found: simulation.Simulation[Plan]) -> Iterator[Json]:
    """Rows with `step`, `action`, `vm` and `reason`. VMI names depend on the set's UID, so a new set has only a name
    pattern."""
    replica_set = snapshot.replica_set
    for row in simulation.rows(found.steps):
        unnamed = not replica_set.uid and row["action"] == Create.verb
        yield {**row, "vm": f"{replica_set.base_name}-*"} if unnamed else row


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


def answer(snapshot: ReplicaSetSnapshot, now: datetime) -> Json:
    """The response to the webhook for a hypothetical snapshot."""
    found = simulate(snapshot, now, simulation.MAX_ACTIONS_OF_ANSWER)
    return {"plan": simulation.plan_of_answer(rows(snapshot, found)), "complete": found.complete}
