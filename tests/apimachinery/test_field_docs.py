"""Schemas of models describe the fields as the docstrings under the fields do."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from poolhouse.api.apimachinery.field_docs import DocumentedModel, field_docs


class Base(DocumentedModel):
    size: int = 0
    """Number of
    VMs."""
    plain: int = 0


class Derived(Base):
    part: Base | None = None
    """A part."""
    renamed: int = Field(default=0, alias="otherName")
    """Has another name in documents."""
    described: int = Field(default=0, description="By the field.")
    """By the docstring."""


def descriptions(schema: Any) -> dict[str, str]:
    return {name: field["description"] for name, field in schema["properties"].items() if "description" in field}


def test_the_docstrings_of_a_model_and_its_bases_are_found() -> None:
    assert field_docs(Derived) == {
        "size": "Number of\nVMs.",
        "part": "A part.",
        "renamed": "Has another name in documents.",
        "described": "By the docstring.",
    }


def test_a_schema_has_the_docstrings_also_of_nested_models() -> None:
    schema = Derived.model_json_schema()
    rest = {"part": "A part.", "described": "By the field."}
    assert descriptions(schema) == {
        "size": "Number of\nVMs.",
        "otherName": "Has another name in documents.",
        **rest,
    }
    assert descriptions(schema["$defs"]["Base"]) == {"size": "Number of\nVMs."}
    by_name = descriptions(Derived.model_json_schema(by_alias=False))
    assert by_name == {"size": "Number of\nVMs.", "renamed": "Has another name in documents.", **rest}
