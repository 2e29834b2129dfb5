"""The OpenAPI document as a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from fastapi import FastAPI
from pydantic import BaseModel, Field

from poolhouse.service.api_docs import page


class Step(BaseModel):
    """One <step>."""

    action: str = Field(description="What is done & why.")
    sizes: dict[str, list[int]] | None = None


def documented() -> str:
    app = FastAPI(title="An <API>")

    @app.post("/steps")
    async def steps(step: Step, dry: bool = False) -> list[Step]:
        """Takes a step."""
        return [step]

    return page(app.openapi())


def test_each_operation_and_schema_is_shown() -> None:
    html = documented()
    assert "<code>POST /steps</code>" in html
    assert "Takes a step." in html
    assert '<a href="#Step">Step</a>' in html
    assert '<h3 id="Step">' in html
    assert "map of string to list of integer or null" in html


def test_text_is_escaped_and_nothing_is_loaded() -> None:
    html = documented()
    assert "One &lt;step&gt;." in html
    assert "What is done &amp; why." in html
    assert not re.search(r"(src|href)=\"(?!#)", html)
    HTMLParser().feed(html)
