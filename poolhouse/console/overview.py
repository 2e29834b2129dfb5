"""The overview: all objects of Poolhouse, with what is wrong first."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.kind import Kind
from poolhouse.cli.overview import current, object_row
from poolhouse.console.cluster_state import ClusterState
from poolhouse.console.page import Page, Part, Query, Slice, matches, object_path, with_query

ORDER = {"Degraded": 0, "Progressing": 1, "Suspended": 2, "Healthy": 3}


async def overview(state: ClusterState, query: Query) -> Page:
    found = [(kind, state.list(kind)) for kind in KINDS]
    rows = await state.compute(_rows, found, state.now())
    shown = await state.compute(table, rows, query)
    # A console of one namespace has no cluster-wide kinds: a Role of the namespace cannot allow to list them.
    unlisted = state.unlisted(*(kind for kind in KINDS if kind.namespaced or state.namespace is None))
    return Page(
        "Overview",
        [
            Part("summary", "summary.html", summary(rows, query)),
            Part("objects", "objects.html", shown | {"unlisted": unlisted}),
        ],
    )


def _rows(found: list[tuple[Kind, list[Json]]], now: datetime) -> list[Json]:
    return [
        {**object_row(kind, each, now), "short": kind.short_name, "path": path_of(kind.short_name, each)}
        for kind, documents in found
        for each in current(documents, kind, now)
    ]


def path_of(short: str, document: Json) -> str:
    metadata = document["metadata"]
    return object_path(short, metadata.get("namespace"), metadata["name"])


def summary(rows: list[Json], query: Query) -> Json:
    """How many objects are in each state, and of each kind."""
    states, kinds = Counter(row["state"] for row in rows), Counter(row["short"] for row in rows)
    return {
        "states": [(name, states[name], with_query(query, state=name, page="")) for name in ORDER],
        "kinds": [
            (kind.kind, kinds[kind.short_name], with_query(query, kind=kind.short_name, page="")) for kind in KINDS
        ],
        "all": with_query(query, state="", kind="", page=""),
        "chosen": query.get("state", ""),
        "kind": query.get("kind", ""),
        "total": len(rows),
    }


def table(rows: list[Json], query: Query) -> Json:
    """The rows that the query selects, with degraded objects first."""
    found = [
        row
        for row in rows
        if query.get("state") in (None, "", row["state"])
        and query.get("kind") in (None, "", row["short"])
        and matches(f"{row['short']}/{row['name']} {row['namespace'] or ''} {row['message']}", query)
    ]
    found.sort(key=lambda row: ORDER[row["state"]])
    return {"slice": Slice.of(found, query), "query": query, "any": bool(rows)}
