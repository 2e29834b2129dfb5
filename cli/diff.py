"""What differs between two documents, as paths that people recognise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """`spec.template.spec.domain.cpu.cores: 1 -> 2`, one for each place, as deep as both go. Entries of a list are told
    apart by their names where they have any."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
        return
    olds, news = _named(before), _named(after)
    if olds is not None and news is not None:
        for name in {**olds, **news}:
            yield from differences(olds.get(name), news.get(name), f"{path}[{name}]")
        return
    yield f"{path}: {_shown(before)} -> {_shown(after)}"


def _named(value: Any) -> dict[str, Any] | None:
    """A list by the names of its entries, or None where they have none or share one."""
    if not isinstance(value, list):
        return None
    found: dict[str, Any] = {}
    for each in value:
        name = each.get("name") or (each.get("metadata") or {}).get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = each
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
