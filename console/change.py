"""The plan of a change: problems, the difference, the order of actions, and then the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from console.page import Page, Part
from console.pages import Context


@dataclass(frozen=True)
class Applied:
    path: str
    message: str


async def preview(context: Context, values: Mapping[str, str]) -> Page | Applied:
    return Page(
        "Plan a change", [Part("text", "text.html", {"title": "Plan a change", "text": ""})], "change", live=False
    )
