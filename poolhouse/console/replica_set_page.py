"""The page of a replica set: its VMIs, and what the controller does next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from controllers.replicaset.observe import ReplicaSetSnapshot
from controllers.replicaset.plan import Plan, plan
from controllers.replicaset.simulate import rows, simulate
from poolhouse.api.apimachinery.counting import count_of
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.console.page import Part, Query, object_path
from poolhouse.console.pool_page import MAX_NEXT, Member, grouped, groups, table
from poolhouse.console.words import vmi_state


def parts(snapshot: ReplicaSetSnapshot, query: Query, now: datetime) -> list[Part]:
    """The parts whose cost grows with the VMIs."""
    decided = plan(snapshot, now)
    found = members(snapshot, decided)
    return [
        Part("rollout", "rollout.html", picture(snapshot, found)),
        Part("next", "next.html", next_actions(snapshot, decided, now)),
        Part("vms", "members.html", table(found, query, now) | {"noun": "VMI"}),
    ]


def members(snapshot: ReplicaSetSnapshot, decided: Plan) -> list[Member]:
    waits = {each.vmi.name: each.why for each in decided.waits}
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


def next_actions(snapshot: ReplicaSetSnapshot, decided: Plan, now: datetime) -> Json:
    found = simulate(snapshot, now, MAX_NEXT + 1)
    shown = [*rows(snapshot, found)]
    return {
        "rows": shown[:MAX_NEXT],
        "more": len(shown) > MAX_NEXT or not found.complete,
        "waits": grouped((each.vmi.name, each.why) for each in decided.waits),
        "blocked": "",
        "paused": snapshot.replica_set.spec.paused,
    }
