from __future__ import annotations

from poolhouse.api.apimachinery.docstrings import docstrings_of


class Outer:
    first: int
    """The first."""
    second: int = 2
    """The second,

    in two paragraphs.
    """
    untold: int
    told_by_nobody = 3
    """No annotation, so no field."""

    class Inner:
        """Not of a field."""

        first: str
        """Another first."""


class Heir(Outer):
    untold: int


def test_docstrings_are_those_of_the_own_body() -> None:
    class Local:
        first: int
        """A local first."""

    assert docstrings_of(Outer) == {"first": "The first.", "second": "The second,\n\nin two paragraphs."}
    assert docstrings_of(Outer.Inner) == {"first": "Another first."}
    assert docstrings_of(Heir) == {}
    assert docstrings_of(Local) == {"first": "A local first."}


def test_a_class_without_source_has_none() -> None:
    assert docstrings_of(type("Made", (), {"__module__": "nowhere"})) == {}
    assert docstrings_of(int) == {}
