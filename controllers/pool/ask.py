"""What would be done with a pool that is as a document says: asked of the stores, by people and by the webhook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from controllers.pool.observe import observe
from controllers.pool.simulate import rows, simulate
from controllers.pool.snapshot import InvalidSpec, Pool, PoolSnapshot, parse_pool
from controllers.pool.stores import POOL_SOURCE, VMS, Stores
from controllers.shared.plan_endpoint import authorize_list, problem_body
from runtime.api import Api

Json = dict[str, Any]

PATH = "/apis/pools/plan"
YOUNGEST = "9999-12-31T23:59:59Z"
"""birth of a pool that is not made yet"""
MOST_STEPS = 50
"""of an answer over HTTP, which others wait for"""


def hypothetical_snapshot(stores: Stores, document: Json, burst: int) -> PoolSnapshot | InvalidSpec:
    """The state of a pool that is as the document says, among the VMs and the other pools that there are."""
    metadata = {"uid": "", "creationTimestamp": YOUNGEST, **document["metadata"]}
    known = stores.pools.get((metadata.get("namespace", ""), metadata["name"]))
    if known is not None:
        metadata |= {"uid": known.uid, "creationTimestamp": known.born if isinstance(known, Pool) else YOUNGEST}
        document = {**document, "status": known.status.json()}
    view = parse_pool({**document, "metadata": metadata})
    beside = POOL_SOURCE.store()
    beside.put(view.key, view)
    for _, other in stores.sharing(view) if isinstance(view, Pool) else ():
        beside.put(other.key, other)
    found = observe(replace(stores, pools=beside), view.key, settled=True, failure=None, burst=burst)
    assert found is not None  # it has just been put there
    return found


@dataclass
class Ask:
    """Answers the webhook's question from the informers' stores, to those who may see what is in them. Nothing is
    written."""

    api: Api
    stores: Stores
    burst: int
    now: Callable[[], datetime]

    async def __call__(self, document: Json, token: str) -> tuple[int, Json]:
        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            return 422, problem_body("is missing; give the pool's name", "metadata.name")
        if no := await authorize_list(self.api, token, VMS, metadata.get("namespace") or ""):
            return no
        state = hypothetical_snapshot(self.stores, document, self.burst)
        if isinstance(state, InvalidSpec):
            return 422, problem_body(state.problem, "spec")
        # In a thread: it may take a second for thousands of VMs, and the controllers have other work.
        found = await asyncio.to_thread(simulate, state, self.now(), MOST_STEPS)
        plan = [{key: row[key] for key in ("action", "vm", "reason")} for row in rows(found)]
        return 200, {"plan": plan, "complete": found.complete, "blocked": found.blocked, "refused": found.refused}
