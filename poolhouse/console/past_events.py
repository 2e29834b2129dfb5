"""The events about an object, as rows of its page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from poolhouse.api.apimachinery.timestamps import format_time, known_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.kind import Kind
from poolhouse.console import words
from poolhouse.console.context import Context
from poolhouse.console.page import Part
from poolhouse.runtime.errors import ApiError, Forbidden
from poolhouse.runtime.events import EVENTS, last_observed

MAX_EVENTS = 40


async def events_of(context: Context, kind: Kind, namespace: str, name: str) -> Part:
    try:
        items = await list_events(context, namespace, [name])
    except ApiError:  # the page says that the API server does not answer
        items = []
    rows = [event_row(each, context.state.now()) for each in items or () if each["regarding"].get("kind") == kind.kind]
    rows.sort(key=lambda each: each["time"], reverse=True)
    return events_part(rows, hidden=items is None, title="Events")


def events_part(rows: list[Json], *, hidden: bool, title: str) -> Part:
    more = max(0, len(rows) - MAX_EVENTS)
    return Part("events", "events.html", {"rows": rows[:MAX_EVENTS], "more": more, "hidden": hidden, "title": title})


async def list_events(context: Context, namespace: str, names: Sequence[str]) -> list[Json] | None:
    """The events about objects with these names; None if the user may not list events."""
    state = context.state

    async def fetch() -> list[Json] | None:
        found: list[Json] = []
        for name in dict.fromkeys(names):
            try:
                items, _ = await state.api.list(EVENTS, namespace or None, field_selector=f"regarding.name={name}")
            except Forbidden:
                return None
            found += items
        return [each for each in found if last_observed(each)]

    return await state.remember(("events", namespace, tuple(names)), state.version[0], fetch)


def event_row(event: Json, now: datetime) -> Json:
    time = last_observed(event)
    moment = known_time(time)
    series = event.get("series") or {}
    return {
        "time": format_time(moment) if moment else time,
        "age": words.age(time[:19] + "Z", now),
        "type": event.get("type") or "",
        "reason": event.get("reason") or "",
        "note": event.get("note") or "",
        "count": series.get("count") or event.get("deprecatedCount") or 1,
        "object": event["regarding"].get("name") or "",
    }
