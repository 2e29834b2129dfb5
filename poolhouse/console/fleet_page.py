"""The fleet: what the next restart of each VM changes for its guest, as `poolhouse hardware fleet` decides it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from defaulter.fleet import Defaulted
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.console.page import Query, Slice, matches, with_query

FRESH_SECONDS = 30
"""how long a report is shown again, because that of 10,000 VMs takes seconds"""


def table(reports: Sequence[Json], refused: Sequence[str], query: Query) -> Json:
    """The rows that the query selects, with those first that change most."""
    counts = Counter(each["defaulted"] for each in reports)
    rows = [
        each
        for each in reports
        if query.get("defaulted") in (None, "", each["defaulted"])
        and matches(f"{each['namespace']}/{each['name']} {_texts(each)}", query)
    ]
    rows.sort(key=lambda each: (-len(each["changes"]), -len(each["unknown"]), each["namespace"], each["name"]))
    return {
        "groups": [(name, counts[name], with_query(query, defaulted=name, page="")) for name in get_args(Defaulted)],
        "chosen": query.get("defaulted", ""),
        "all": with_query(query, defaulted="", page=""),
        "total": len(reports),
        "changing": sum(1 for each in reports if each["changes"]),
        "not_held": sum(1 for each in reports if each["held"] is False),
        "slice": Slice.of(rows, query),
        "query": query,
        "refused": refused,
    }


def _texts(report: Json) -> str:
    changes = [f"{each['device']} {each['field']} {each['reason']}" for each in report["changes"]]
    return " ".join((*changes, *report["unknown"]))
