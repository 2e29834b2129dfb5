"""Warm pools and claims: how long claims wait, how many VMs wait, and how large a pool should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from controllers.shared.vm import VM
from controllers.warmpool.warm_pool import InvalidWarmPool, parse_warm_pool
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.claim_status import describe
from poolhouse.cli.demand import Wait, demand_of, format_wait, is_of, percentile, waits
from poolhouse.cli.health import assess
from poolhouse.cli.sizing import explain, lines, replay_of
from poolhouse.cli.svg import Series, step_chart
from poolhouse.cli.warmpool import pool_row
from poolhouse.console import words
from poolhouse.console.cluster_state import ClusterState, Sample
from poolhouse.console.page import Query, Slice, matches, object_path, with_query

CLAIMS_IN_CHART = 500
MAX_VMS = 100
USUAL = ("Ready", "InUse")
"""warm states whose VMs come last"""


def waits_of(claims: Iterable[Json], pool: tuple[str, str]) -> list[Wait]:
    return waits(each for each in claims if is_of(each, pool))


def idle_hours(samples: Sequence[Sample], now: float) -> float:
    """VM-hours for which VMs waited since the first sample."""
    ends = [*(each.time for each in samples), now][1:]
    return sum(each.available * max(0.0, end - each.time) for each, end in zip(samples, ends, strict=True)) / 3600


def measures(state: ClusterState, document: Json) -> Json:
    """The waits of claims, and the queue and the spare VMs since the console was started, as numbers and charts."""
    metadata, now = document["metadata"], state.now().timestamp()
    found = waits_of(state.list(CLAIM), (metadata["namespace"], metadata["name"]))
    samples = state.samples((metadata["namespace"], metadata["name"]))
    took = [each.seconds for each in found]
    status = document.get("status") or {}
    charts = []
    if len(found) > 1:
        last = found[-CLAIMS_IN_CHART:]
        series = Series("wait in seconds", [(each.time, each.seconds) for each in last])
        charts.append(
            step_chart("Waits of claims, by time of the handover", last[0].time, max(now, last[0].time + 1), [series])
        )
    if samples:
        spare = Series("spare VMs", [(each.time, each.available) for each in samples])
        queue = Series("claims in the queue", [(each.time, each.queued) for each in samples])
        claimed = Series("claimed VMs", [(each.time, each.claimed) for each in samples])
        begin = samples[0].time
        charts.append(step_chart("Since the console was started", begin, max(now, begin + 60), [spare, queue, claimed]))
    return {
        "numbers": [
            ("Claims served", len(found)),
            ("Wait p50", format_wait(percentile(took, 50))),
            ("Wait p99", format_wait(percentile(took, 99))),
            ("Claims in the queue", status.get("queuedClaims", 0)),
            ("Spare VMs", status.get("availableReplicas", 0)),
            ("Idle VM-hours", f"{idle_hours(samples, now):.2f}" if samples else "-"),
        ],
        "launches": Counter(each.launch for each in found if each.launch).most_common(),
        "charts": charts,
    }


def size(state: ClusterState, document: Json, now: datetime) -> Json:
    """Why so many VMs wait, as `poolhouse warmpool why` says."""
    pool = parse_warm_pool(document)
    if isinstance(pool, InvalidWarmPool):
        return {"lines": [f"the spec is invalid: {pool.problem}"], "path": ""}
    metadata = document["metadata"]
    path = f"/sizing{object_path('', metadata['namespace'], metadata['name'])[1:]}"
    return {"lines": list(lines(explain(pool, demand_of(pool, state.list(CLAIM), now)))), "path": path}


def advice(claims: Iterable[Json], document: Json, now: datetime) -> Json:
    """Sizes, standby modes and autoscaling for the claims of the last week. Raises `Failed` without claims. It replays
    up to 100,000 claims, which takes seconds."""
    pool = parse_warm_pool(document)
    if isinstance(pool, InvalidWarmPool):
        return {"title": f"the spec is invalid: {pool.problem}", "measured": "", "rows": [], "chart": ""}
    replay = replay_of(pool, demand_of(pool, claims, now))
    rows = [
        {**each, "p50": format_wait(each["waitP50"]), "p99": format_wait(each["waitP99"])} for each in replay.rows(())
    ]
    return {"title": replay.title, "measured": replay.measured, "rows": rows, "chart": replay.plot(pool.name)}


def warm_vms(state: ClusterState, document: Json, now: datetime) -> Json:
    """The VMs of the pool with their states, those with a problem first."""
    metadata = document["metadata"]
    found = [
        vm
        for vm in state.pools.vms
        if vm.namespace == metadata["namespace"] and vm.labels.get(meta.WARM_POOL) == metadata["name"]
    ]
    rows = [
        _vm_row(state, vm, now)
        for vm in sorted(found, key=lambda vm: (vm.labels.get(meta.WARM_STATE) in USUAL, vm.name))
    ]
    more = max(0, len(rows) - MAX_VMS)
    return {"rows": rows[:MAX_VMS], "more": more, "states": Counter(each["state"] for each in rows).most_common()}


def _vm_row(state: ClusterState, vm: VM, now: datetime) -> Json:
    vmi = state.pools.vmis.get(vm.key)
    return {
        "name": vm.name,
        "path": object_path("vm", vm.namespace, vm.name),
        "state": STATE_WORDS.get(label := vm.labels.get(meta.WARM_STATE, ""), label or "no state"),
        "node": vmi.node if vmi is not None else "",
        "age": words.age(vm.created_at, now),
    }


STATE_WORDS = {
    "PENDING_WARMPOOL_PROVISIONING": "being created",
    "PENDING_STANDBY": "going to standby",
    "Ready": "ready for a claim",
    "PENDING_POD_PROVISIONING": "being handed over",
    "InUse": "in use",
    "PENDING_TERMINATION": "being deleted",
    "Unhealthy": "unhealthy",
    "Unknown": "not checked",
}


def pools(state: ClusterState, now: datetime) -> Json:
    claims = state.list(CLAIM)
    rows = []
    for each in state.list(WARM_POOL):
        row = pool_row(each, now)
        took = [wait.seconds for wait in waits_of(claims, (row["namespace"], row["name"]))]
        path = object_path(WARM_POOL.short_name, row["namespace"], row["name"])
        rows.append(
            {**row, "path": path, "p50": format_wait(percentile(took, 50)), "p99": format_wait(percentile(took, 99))}
        )
    return {"rows": rows, "unlisted": state.unlisted(WARM_POOL)}


def claims_table(state: ClusterState, query: Query, now: datetime, pool: tuple[str, str] | None = None) -> Json:
    """The claims of all or of the user, the newest first."""
    mine = query.get("claims") == "mine"
    found = []
    for each in state.list(CLAIM):
        metadata, status = each["metadata"], each.get("status") or {}
        requester = (metadata.get("annotations") or {}).get(meta.REQUESTER, "")
        if (mine and requester != state.user) or (
            pool is not None and (metadata["namespace"], status.get("poolName")) != pool
        ):
            continue
        assert CLAIM.phases is not None
        row = {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "path": object_path(CLAIM.short_name, metadata["namespace"], metadata["name"]),
            "phase": status.get("phase") or "Pending",
            "state": assess(each).state if status.get("phase") not in CLAIM.phases.finished else "",
            "requester": requester,
            "message": describe(metadata["name"], status, yours=requester == state.user),
            "age": words.age(metadata.get("creationTimestamp"), now),
            "created": metadata.get("creationTimestamp") or "",
        }
        if matches(f"{row['name']} {row['namespace']} {row['requester']} {row['message']}", query):
            found.append(row)
    found.sort(key=lambda row: row["created"], reverse=True)
    return {
        "slice": Slice.of(found, query),
        "query": query,
        "mine": mine,
        "unlisted": state.unlisted(CLAIM),
        "links": (with_query(query, claims="", page=""), with_query(query, claims="mine", page="")),
    }
