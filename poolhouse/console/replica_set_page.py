"""The page of a replica set: its VMIs, and what the controller does next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from controllers.replicaset.observe import ReplicaSetSnapshot
from controllers.replicaset.plan import plan
from controllers.replicaset.simulate import rows, simulate
from poolhouse.api.apimachinery.counting import count_of
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.console.page import object_path
from poolhouse.console.pool_page import MAX_NEXT, Member, grouped, groups
from poolhouse.console.words import vmi_state


def members(snapshot: ReplicaSetSnapshot, now: datetime) -> list[Member]:
    waits = {each.vmi.name: each.why for each in plan(snapshot, now).waits}
    return [
        Member(
            vmi.name,
            object_path("vmi", vmi.namespace, vmi.name),
            vmi_state(vmi),
            "new",
            node=vmi.node,
            created=vmi.created_at,
            addresses=", ".join(vmi.addresses),
            note="; ".join(each for each in (vmi.start_failure, waits.get(vmi.name, "")) if each),
        )
        for vmi in sorted(snapshot.owned, key=lambda vmi: vmi.name)
    ]


def picture(snapshot: ReplicaSetSnapshot, found: Sequence[Member]) -> Json:
    total, ready = len(snapshot.active), sum(vmi.ready for vmi in snapshot.active)
    return {
        "message": f"{count_of(ready, total, 'VMI', 'is', 'are')} ready",
        "groups": groups(found),
        "total": total,
    }


def next_actions(snapshot: ReplicaSetSnapshot, now: datetime) -> Json:
    found = simulate(snapshot, now, MAX_NEXT + 1)
    shown = [*rows(snapshot, found)]
    return {
        "rows": shown[:MAX_NEXT],
        "more": len(shown) > MAX_NEXT or not found.complete,
        "waits": grouped((each.vmi.name, each.why) for each in plan(snapshot, now).waits),
        "blocked": "",
        "paused": snapshot.replica_set.spec.paused,
    }
