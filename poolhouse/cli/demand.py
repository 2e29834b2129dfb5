"""The claims of a warm pool, as far as they are known: when they came, and how long they waited.

The controller writes a summary of all claims into the pool's status some minutes after a claim. The claims that still
exist have their own times.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import known_time, parse_time
from poolhouse.api.apimachinery.unstructured import Json

if TYPE_CHECKING:
    from controllers.warmpool.autoscaling.history import DemandHistory
    from controllers.warmpool.warm_pool import WarmPool

WEEK = 604_800.0
SLOT_SECONDS = 900.0


@dataclass(frozen=True)
class Wait:
    """A claim that got its VM."""

    time: float
    seconds: float
    launch: str


@dataclass(frozen=True)
class Demand:
    history: DemandHistory
    existing: tuple[float, ...] | None
    """creation times of the claims that still exist, in seconds since 1970; None if the user may not list claims"""
    since: float = 0.0
    waits: tuple[Wait, ...] = ()

    @cached_property
    def arrivals(self) -> list[float]:
        """The times of the claims since `since`. A claim that exists has its creation time. A claim that only the
        summary counts has a time in its quarter of an hour.

        Creation times have whole seconds, so a claim of the second in which the summary was saved may be missing in it.
        Where more claims exist than the summary counts, only those that exist are returned."""
        existing = [time for time in self.existing or () if time > self.since]
        in_summary = Counter(time // SLOT_SECONDS for time in existing if time <= self.history.saved_at)
        summary: dict[float, list[float]] = defaultdict(list)
        for time in self.history.replay():
            if time > self.since:
                summary[time // SLOT_SECONDS].append(time)
        others = (time for slot, times in summary.items() for time in times[in_summary[slot] :])
        return sorted([*existing, *others])

    @property
    def measured(self) -> str:
        """How long the claims waited that the cluster still has."""
        if not self.waits:
            return ""
        took, cold = [each.seconds for each in self.waits], sum(each.launch == "Cold" for each in self.waits)
        return (
            f"measured: {count_noun(len(took), 'claim', 'has', 'have')} got a VM, wait p50 "
            f"{format_wait(percentile(took, 50))}, p99 {format_wait(percentile(took, 99))}, "
            f"{count_noun(cold, 'cold start')}"
        )


def demand_of(pool: WarmPool, claims: Iterable[Json] | None, now: datetime) -> Demand:
    """The demand of the last week."""
    from controllers.warmpool.autoscaling.history import DemandHistory

    history, week = DemandHistory.decode(pool.status.demand_history), now.timestamp() - WEEK
    if claims is None:
        return Demand(history, None, week)
    own = [each for each in claims if is_of(each, pool.key)]
    created = (parse_time(each["metadata"]["creationTimestamp"]).timestamp() for each in own)
    # An earlier pool of the name may have had older claims.
    begin = parse_time(pool.created_at).timestamp() if pool.created_at else 0.0
    return Demand(history, tuple(sorted(time for time in created if time >= begin)), week, tuple(waits(own)))


def is_of(claim: Json, pool: tuple[str, str]) -> bool:
    return (claim["metadata"].get("namespace"), (claim.get("status") or {}).get("poolName")) == pool


def waits(claims: Iterable[Json]) -> list[Wait]:
    """The waits of the claims that have got a VM, in the order of their handover."""
    found = []
    for each in claims:
        status = each.get("status") or {}
        took, ready = (status.get("timings") or {}).get("totalMs"), known_time(status.get("readyAt") or "")
        if ready and took is not None:
            found.append(Wait(ready.timestamp(), took / 1000, str(status.get("launchType") or "")))
    return sorted(found, key=lambda wait: wait.time)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that so many percent of the values do not exceed; None without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)] if ordered else None


def format_wait(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
