"""The health of an object in Argo CD's terms. The controllers decide it: `assess` reads the conditions Ready,
Reconciling and Stalled, as kstatus and the scripts for Argo CD do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from poolhouse.api.apimachinery.timestamps import format_duration, parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.conditions import NOTED

State = Literal["Healthy", "Progressing", "Suspended", "Degraded"]

COLOURS: dict[State, str | None] = {
    "Healthy": None,
    "Progressing": "yellow",
    "Suspended": "yellow",
    "Degraded": "red",
}
AS_EXPECTED = frozenset({"Ready", "InSync", "HandedOver"})
"""Reasons of a true condition Ready that say no more than it. Others, such as Paused, are told of a healthy object."""


@dataclass(frozen=True)
class Health:
    state: State
    message: str = ""


def describe_deletion(metadata: Json) -> str:
    return "; ".join(("it is being deleted", *finalizers_left(metadata)))


def finalizers_left(metadata: Json) -> list[str]:
    """What keeps an object that is being deleted, as a sentence; empty for another object."""
    found = metadata.get("finalizers") if metadata.get("deletionTimestamp") else ()
    return [f"it stays until these finalizers are removed: {', '.join(found)}"] if found else []


def assess(document: Json) -> Health:
    """Returns the health of an object of any of our kinds. An object that asks for nothing any more, such as a claim
    that was released, has no condition Ready and is healthy, like a completed Job."""
    metadata, status = document["metadata"], document.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return Health("Progressing", describe_deletion(metadata))
    if status.get("observedGeneration") is None or status["observedGeneration"] != metadata.get("generation"):
        return Health("Progressing", "the controller has not observed the last change yet")
    found = {each["type"]: each for each in status.get("conditions") or ()}
    if holds(found, "Stalled"):
        return Health("Degraded", "; ".join((_format(found["Stalled"]), *_notes(found))))
    if "Ready" not in found or holds(found, "Ready"):
        ready = found.get("Ready")
        said = "" if ready is None or ready.get("reason") in AS_EXPECTED else _format(ready)
        parts = (status.get("phase"), said, *_notes(found))
        return Health("Healthy", "; ".join(filter(None, parts)))
    state: State = "Progressing" if holds(found, "Reconciling") else "Suspended"
    return Health(state, "; ".join((_format(found["Ready"]), *_notes(found))))


def holds(conditions: Mapping[str, Json], kind: str) -> bool:
    return bool(conditions.get(kind, {}).get("status") == "True")


def format_age(document: Json, now: datetime) -> str:
    created = document["metadata"].get("creationTimestamp")
    if not created:
        return "<unknown>"
    return format_duration((now - parse_time(created)).total_seconds())


def notes(document: Json, kinds: Iterable[str]) -> Iterator[str]:
    """The reasons and messages of these conditions, if they are True."""
    found = {each["type"]: each for each in (document.get("status") or {}).get("conditions") or ()}
    yield from _notes(found, kinds)


def _notes(conditions: Mapping[str, Json], kinds: Iterable[str] = NOTED) -> Iterator[str]:
    yield from (_format(conditions[name]) for name in kinds if holds(conditions, name))


def _format(condition: Json) -> str:
    reason, message = condition.get("reason"), condition.get("message")
    return f"{reason}: {message}" if message else str(reason)
