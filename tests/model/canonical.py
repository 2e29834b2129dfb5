"""What a state is, apart from the moment at which it is reached."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import BaseModel

from poolhouse.api.apimachinery.timestamps import parse_time

LONG_SECONDS = 100_000.0
"""Longer ages are equal: no planner waits for more than a day."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@dataclass
class Canonical:
    """Gives values a hashable form, with ages instead of times.

    States share most of their values, which nobody changes, so that the form of each one is computed once."""

    without: frozenset[str] = frozenset()
    """names of fields on which nothing depends"""
    _known: dict[tuple[int, datetime], tuple[Any, Hashable]] = field(default_factory=dict)

    def __call__(self, value: Any, now: datetime) -> Hashable:
        key = id(value), now
        if key not in self._known:
            # With a reference to the value, no other value gets its id.
            self._known[key] = value, self._form(value, now)
        return self._known[key][1]

    def _form(self, value: Any, now: datetime) -> Hashable:
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                return _age(value, now) if len(value) >= 20 and _TIME.fullmatch(value) else value
            case tuple() | list():
                return tuple(self._form(each, now) for each in value)
            case Mapping():
                return tuple(sorted((key, self._form(each, now)) for key, each in value.items()))
            case frozenset() | set():
                return tuple(sorted(map(str, value)))
        names = _names(value.__class__)
        return tuple(self._form(getattr(value, name), now) for name in names if name not in self.without)


def _age(text: str, now: datetime) -> float:
    return max(-LONG_SECONDS, min(LONG_SECONDS, (now - parse_time(text)).total_seconds()))


@cache
def _names(kind: type) -> tuple[str, ...]:
    if issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    assert is_dataclass(kind), kind
    return tuple(each.name for each in fields(kind))
