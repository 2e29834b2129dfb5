"""The revisions of a pool, and the differences between their templates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.pools import current_revision

MAX_CHANGES = 2
MAX_VALUE_LENGTH = 60


def summarize_changes(changes: Sequence[str]) -> str:
    """Returns the first changes, for a table. JSON and YAML contain all changes."""
    more = len(changes) - MAX_CHANGES
    return "; ".join([*changes[:MAX_CHANGES], *([f"and {more} more"] if more > 0 else [])])


def history_rows(document: Json, revisions: list[Json], counts: Counter[str]) -> Iterator[Json]:
    from poolhouse.api.kubevirt.meaning import POOL_CONTENT
    from poolhouse.api.kubevirt.own_namespace import without_own_namespace

    current, status = current_revision(document, revisions), document.get("status") or {}
    ended = {each["revision"]: each for each in status.get("history") or ()}
    before: Json | None = None
    for each in revisions:
        name = each["metadata"]["name"]
        data = without_own_namespace(each["data"], POOL_CONTENT, document["metadata"]["namespace"])
        end = ended.get(name) or {"outcome": "Progressing" if name == current else None}
        yield {
            "revision": each["revision"],
            "name": name,
            "created": each["metadata"].get("creationTimestamp"),
            "vms": counts[name.rpartition("-")[2]],
            "current": name == current,
            **{key: end.get(key) for key in ("outcome", "reason", "message")},
            "ended": end.get("time"),
            "changes": [] if before is None else list(differences(before, data, POOL_CONTENT)),
        }
        before = data


def differences(before: Any, after: Any, type_name: str = "", path: str = "") -> Iterator[str]:
    """Yields lines such as `template.spec.domain.cpu.cores: 1 -> 2`. Matches list entries by name, and omits what only
    differs in its spelling. `type_name` is the type of both values in poolhouse/api/kubevirt/meaning.py."""
    from poolhouse.api.kubevirt.meaning import changed_fields, mean_the_same

    if mean_the_same(before, after, type_name):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for each in changed_fields(before, after, type_name):
            yield from differences(each.before, each.after, each.type, f"{path}.{each.name}" if path else each.name)
        return
    old, new = _by_name(before), _by_name(after)
    if old is not None and new is not None:
        for name in {**old, **new}:
            yield from differences(old.get(name), new.get(name), type_name, f"{path}[{name}]")
        return
    yield f"{path}: {_short(before)} -> {_short(after)}"


def _by_name(value: Any) -> dict[str, Any] | None:
    """Returns the entries of a list by name; None if an entry has no name or a name is not unique."""
    if not isinstance(value, list):
        return None
    found: dict[str, Any] = {}
    for each in value:
        name = each.get("name") or (each.get("metadata") or {}).get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = each
    return found


def _short(value: Any) -> str:
    text = "nothing" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 1] + "…"
