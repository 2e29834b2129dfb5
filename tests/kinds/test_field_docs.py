"""Docstrings under fields."""

from __future__ import annotations

from poolhouse.api.kinds.field_docs import field_docs
from poolhouse.api.kinds.model import Model


class Base(Model):
    kept: int = 0
    """of the base"""
    changed: int = 0
    """of the base"""
    bare: int = 0
    """of the base"""


class Derived(Base):
    changed: int = 1
    """of the
    subclass"""
    bare: int = 1
    new: int = 0


def test_a_field_has_the_docstring_of_the_class_that_declares_it() -> None:
    assert field_docs(Derived) == {"kept": "of the base", "changed": "of the\nsubclass"}


def test_a_schema_has_the_docstrings() -> None:
    properties = Derived.model_json_schema()["properties"]
    assert {name: each.get("description") for name, each in properties.items()} == {
        **dict.fromkeys(["bare", "new"]),
        **field_docs(Derived),
    }
