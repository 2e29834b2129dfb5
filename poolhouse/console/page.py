"""What a page consists of: parts that are rendered, and sent again, on their own."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

T = TypeVar("T")
PAGE_SIZE = 100
Query = Mapping[str, str]


@dataclass(frozen=True)
class Part:
    """A section of a page. The browser replaces it when its HTML changes."""

    name: str
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    title: str
    parts: Sequence[Part]
    tab: str = "overview"
    """the entry of the navigation that contains the page"""
    live: bool = True
    """whether the browser follows changes"""
    scripts: Sequence[str] = ()
    """modules that only this page loads"""
    styles: Sequence[str] = ()


@dataclass(frozen=True)
class Slice(Generic[T]):
    """The rows that one page of a table shows."""

    rows: Sequence[T]
    total: int
    number: int
    pages: int

    @classmethod
    def of(cls, rows: Sequence[T], query: Query, size: int = PAGE_SIZE) -> Slice[T]:
        """The page that the query names. Other values than a number of a page mean the nearest page."""
        pages = max(1, math.ceil(len(rows) / size))
        text = query.get("page", "1")
        number = min(max(int(text) if text.isdecimal() and len(text) < 9 else 1, 1), pages)
        return cls(rows[(number - 1) * size : number * size], len(rows), number, pages)


def matches(text: str, query: Query) -> bool:
    """Whether the text contains each word of the search."""
    return all(word in text.lower() for word in query.get("q", "").lower().split())


def with_query(query: Query, **changes: object) -> str:
    """The query of a link, with changes; an empty value removes the key."""
    found = {key: str(value) for key, value in {**query, **changes}.items() if value not in ("", None)}
    return f"?{urlencode(found)}" if found else "?"


OBJECT_PATH = re.compile(r"/[a-z]+/[^/?#]+/[^/?#]+")


def object_path(short: str, namespace: str | None, name: str) -> str:
    """The path of an object's page. `-` stands for the namespace of a cluster-scoped object."""
    return f"/{short}/{quote(namespace or '-', safe='')}/{quote(name, safe='')}"
