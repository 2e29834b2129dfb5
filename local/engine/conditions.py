"""Conditions of a status as plain documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from apimachinery.timestamps import format_time
from apimachinery.unstructured import Json


def condition(kind: str, status: bool | str, reason: str = "", message: str = "") -> Json:
    """A condition without its lastTransitionTime, which `merge_conditions` adds."""
    value = status if isinstance(status, str) else str(status)
    fields = {"type": kind, "status": value, "reason": reason, "message": message}
    return {key: text for key, text in fields.items() if text}


def find_condition(conditions: Iterable[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    return next((each for each in conditions if each.get("type") == kind), None)


def has_condition(
    conditions: Iterable[Mapping[str, Any]], kind: str, reason: str | None = None, status: str = "True"
) -> bool:
    found = find_condition(conditions, kind)
    return found is not None and found.get("status") == status and reason in (None, found.get("reason"))


def merge_conditions(old: Sequence[Mapping[str, Any]], new: Iterable[Json], now: datetime) -> list[Json]:
    """The new conditions; each keeps its old lastTransitionTime while its status stays the same."""
    merged = []
    for each in new:
        before = find_condition(old, each["type"])
        same = before is not None and before.get("status") == each["status"]
        since = before.get("lastTransitionTime") if before is not None and same else None
        merged.append({**each, "lastTransitionTime": since or format_time(now)})
    return merged
