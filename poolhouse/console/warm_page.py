"""Warm pools and claims: how long claims wait, how many VMs wait, and how large a pool should be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from controllers.shared.vm import VM
from controllers.warmpool.warm_pool import InvalidWarmPool, parse_warm_pool
from poolhouse.api.apimachinery.timestamps import known_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.claim_status import describe
from poolhouse.cli.health import assess
from poolhouse.cli.sizing import demand_of, explain, lines, replay_of
from poolhouse.cli.svg import Series, step_chart
from poolhouse.cli.warmpool import pool_row
from poolhouse.console import words
from poolhouse.console.cluster_state import ClusterState, Sample
from poolhouse.console.page import Query, Slice, matches, object_path, with_query

CLAIMS_IN_CHART = 500
MAX_VMS = 100
USUAL = ("Ready", "InUse")
"""warm states whose VMs come last"""


@dataclass(frozen=True)
class Wait:
    """A claim that got its VM."""

    time: float
    seconds: float
    launch: str


def waits(claims: Iterable[Json], pool: str, namespace: str) -> list[Wait]:
    """The waits of the pool's claims that the cluster still has, in the order of their handover."""
    found = []
    for each in claims:
        status = each.get("status") or {}
        took, ready = (status.get("timings") or {}).get("totalMs"), known_time(status.get("readyAt") or "")
        if (
            each["metadata"].get("namespace") == namespace
            and status.get("poolName") == pool
            and ready
            and took is not None
        ):
            found.append(Wait(ready.timestamp(), took / 1000, str(status.get("launchType") or "")))
    return sorted(found, key=lambda wait: wait.time)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that so many percent of the values do not exceed; None without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)] if ordered else None


def idle_hours(samples: Sequence[Sample], now: float) -> float:
    """VM-hours for which VMs waited since the first sample."""
    ends = [*(each.time for each in samples), now][1:]
    return sum(each.available * max(0.0, end - each.time) for each, end in zip(samples, ends, strict=True)) / 3600


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def measures(state: ClusterState, document: Json) -> Json:
    """The waits of claims, and the queue and the spare VMs since the console was started, as numbers and charts."""
    metadata, now = document["metadata"], state.now().timestamp()
    found = waits(state.list(CLAIM), metadata["name"], metadata["namespace"])
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
            ("Wait p50", seconds(percentile(took, 50))),
            ("Wait p99", seconds(percentile(took, 99))),
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
    return {"lines": list(lines(explain(pool, demand_of(pool, state.list(CLAIM)), now))), "path": path}


def advice(claims: Iterable[Json], document: Json) -> Json:
    """Sizes, standby modes and autoscaling for the claims of the last week. Raises `Failed` without claims. It replays
    up to 100,000 claims, which takes seconds."""
    pool = parse_warm_pool(document)
    if isinstance(pool, InvalidWarmPool):
        return {"title": f"the spec is invalid: {pool.problem}", "rows": [], "chart": ""}
    replay = replay_of(pool, demand_of(pool, claims))
    rows = [{**each, "p50": seconds(each["waitP50"]), "p99": seconds(each["waitP99"])} for each in replay.rows(())]
    return {"title": replay.title, "rows": rows, "chart": replay.plot(pool.name)}


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
        took = [wait.seconds for wait in waits(claims, row["name"], row["namespace"])]
        path = object_path(WARM_POOL.short_name, row["namespace"], row["name"])
        rows.append({**row, "path": path, "p50": seconds(percentile(took, 50)), "p99": seconds(percentile(took, 99))})
    return {"rows": rows}


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
            "message": describe(metadata["name"], status),
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
        "links": (with_query(query, claims="", page=""), with_query(query, claims="mine", page="")),
    }
