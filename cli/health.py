"""Assesses the health of an object in Argo CD's terms, from the conditions and the phase in its status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from apimachinery.timestamps import parse_time
from apimachinery.unstructured import Json
from controllers.pool.reasons import PoolReason
from controllers.warmpool.reasons import WarmPoolReason

if TYPE_CHECKING:
    from kinds.resource_types import Phases

State = Literal["Healthy", "Progressing", "Degraded"]

COLOURS: dict[State, str | None] = {"Healthy": None, "Progressing": "yellow", "Degraded": "red"}

DEGRADED_WHILE_TRUE = frozenset(
    {"Stalled", "ReplicaFailure", "ScaleInBlocked", "DisksShared", "SnapshotFailure", "Degraded"}
)
DEGRADED_WHILE_FALSE = frozenset({"Available", "Valid", "Active", "Enforced"})
DEGRADED_REASONS = frozenset(
    {
        PoolReason.TOO_MANY_FAILING,
        PoolReason.PROGRESS_DEADLINE_EXCEEDED,
        PoolReason.INVALID_SPEC,
        WarmPoolReason.CIRCUIT_BREAKER_OPEN,
    }
)
"""reasons of conditions such as Progressing or Healing that mean Degraded while the condition is False"""
NOTED_WHILE_TRUE = ("UnownedVMs", "RevisionLost")
"""conditions of which a user should know, and that change neither the health of the pool nor its work"""


@dataclass(frozen=True)
class Health:
    state: State
    message: str = ""


def assess(document: Json) -> Health:
    """Returns the health of a pool, replica set, warm pool or migration policy."""
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return Health("Progressing", "it is being deleted")
    if int(status.get("observedGeneration") or 0) < int(metadata.get("generation") or 1):
        return Health("Progressing", "the controller has not observed the last change yet")
    found = {each["type"]: each for each in status.get("conditions") or ()}
    if problem := next(_problems(found), None):
        return Health("Degraded", problem)
    if spec.get("paused"):
        return Health("Progressing", "paused")
    if ready := found.get("Ready"):
        if ready["status"] == "True":
            return Health("Healthy", "; ".join(_notes(found)))
        return Health("Progressing", "; ".join((_format(ready), *_notes(found))))
    progress = found.get("Progressing")  # of controllers of an earlier release
    if progress and progress.get("reason") != PoolReason.COMPLETE:
        return Health("Progressing", _format(progress))
    desired, ready = int(spec.get("replicas", 0)), int(status.get("readyReplicas") or 0)
    if progress is None and ready < desired:
        return Health("Progressing", f"{ready} of {desired} are ready")
    return Health("Healthy")


def assess_phase(document: Json, phases: Phases) -> Health:
    """Returns the health of an object whose status has a phase. An object that has ended as it should is healthy, like
    a completed Job."""
    status = document.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    bound = next((each for each in status.get("conditions") or () if each["type"] == "Bound"), None)
    why = f": {bound.get('message') or bound.get('reason')}" if bound and bound["status"] == "False" else ""
    if phase == phases.ready or phase in phases.finished:
        return Health("Healthy", phase)
    return Health("Degraded" if phase == phases.failed else "Progressing", f"{phase}{why}")


def format_age(document: Json, now: datetime) -> str:
    """Returns the age in kubectl's form: one unit, or two units if the first number is small."""
    created = document["metadata"].get("creationTimestamp")
    if not created:
        return "<unknown>"
    seconds = max(int((now - parse_time(created)).total_seconds()), 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if days < 2:
        return f"{hours}h"
    return f"{days}d"


def _problems(conditions: Mapping[str, Json]) -> Iterator[str]:
    """Yields the problems in the conditions. Stalled is first, because the controller has chosen its reason. Available
    is last, because other conditions show the cause."""
    order = {"Stalled": 0, "Available": 2}
    lacks = _lacks(conditions)
    for each in sorted(conditions.values(), key=lambda each: order.get(each["type"], 1)):
        degraded = each["type"] in (DEGRADED_WHILE_TRUE if each["status"] == "True" else DEGRADED_WHILE_FALSE)
        degraded |= each["status"] == "False" and each.get("reason") in DEGRADED_REASONS
        follows = lacks and (each["type"] == "Available" or each.get("reason") == lacks)
        if degraded and not follows:
            yield _format(each)


def _lacks(conditions: Mapping[str, Json]) -> str:
    """The reason of a shortage of quota or capacity, which ends by itself, or "". The controller goes on meanwhile."""
    reconciling, refused = conditions.get("Reconciling", {}), conditions.get("ReplicaFailure", {})
    if reconciling.get("status") != "True":
        return ""
    reason, same = str(reconciling.get("reason")), refused.get("reason") == reconciling.get("reason")
    short = reason == WarmPoolReason.INSUFFICIENT_CAPACITY or (refused.get("status") == "True" and same)
    return reason if short else ""


def _notes(conditions: Mapping[str, Json]) -> Iterator[str]:
    found = (conditions.get(name, {}) for name in NOTED_WHILE_TRUE)
    yield from (_format(each) for each in found if each.get("status") == "True")


def _format(condition: Json) -> str:
    reason, message = condition.get("reason"), condition.get("message")
    return f"{reason}: {message}" if message else str(reason)
