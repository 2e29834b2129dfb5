"""What would be done with a set that is as a document says: asked of the stores, by people and by the webhook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controllers.replicaset.instance import parse_vmi
from controllers.replicaset.observe import observe
from controllers.replicaset.simulate import simulate
from controllers.replicaset.snapshot import InvalidSpec, ReplicaSetSnapshot, parse_replica_set
from controllers.replicaset.stores import REPLICA_SETS, VMIS, Stores
from controllers.shared.plan_endpoint import authorize_list, problem_body
from runtime.api import Api

Json = dict[str, Any]

PATH = "/apis/replicasets/plan"


def hypothetical_snapshot(stores: Stores, document: Json, burst: int) -> ReplicaSetSnapshot | InvalidSpec:
    """The state of a set that is as the document says, among the instances that there are."""
    metadata = document["metadata"]
    known = stores.sets.get((metadata.get("namespace", ""), metadata["name"]))
    # The UID of a dry run is none that will ever be.
    view = parse_replica_set({**document, "metadata": {**metadata, "uid": known.uid if known is not None else ""}})
    only = Stores(instances=stores.instances)
    only.sets.put(view.key, view)
    found = observe(only, view.key, settled=True, failure=None, burst=burst)
    assert found is not None  # it has just been put there
    return found


@dataclass
class Ask:
    """Answers from the stores, to those who may see what is in them. Nothing is written."""

    api: Api
    burst: int
    now: Callable[[], datetime]
    stores: Stores | None = None
    """None while nothing is followed: another replica leads, or the resource is not ours on this cluster"""

    async def __call__(self, document: Json, token: str) -> tuple[int, Json]:
        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            return 422, problem_body("is missing; give the set's name", "metadata.name")
        if no := await authorize_list(self.api, token, VMIS, metadata.get("namespace") or ""):
            return no
        if self.stores is None:
            return 503, problem_body("this replica does not follow replica sets now")
        state = hypothetical_snapshot(self.stores, document, self.burst)
        if isinstance(state, InvalidSpec):
            return 422, problem_body(state.problem, "spec")
        # In a thread: it may take a while for thousands of instances, and the controllers have other work.
        found = await asyncio.to_thread(lambda: list(simulate(state, self.now())))
        return 200, {"plan": [{key: row[key] for key in ("action", "vm", "reason")} for row in found]}


async def list_stores(api: Api, namespace: str) -> Stores:
    """What there is in the namespace now, for who asks now and then and with his own rights. Raises what the API server
    refuses."""
    stores = Stores()
    async for items, _ in api.pages(REPLICA_SETS, namespace):
        for each in map(parse_replica_set, items):
            stores.sets.put(each.key, each)
    async for items, _ in api.pages(VMIS, namespace):
        for found in map(parse_vmi, items):
            stores.instances.put(found.key, found)
    return stores
