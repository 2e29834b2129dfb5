"""Errors of a document, which its author must correct, and errors of this libvirt, which may be temporary."""

from collections.abc import Iterable
from typing import NamedTuple

from defaulter.json_paths import Path
from poolhouse.api.apimachinery.problem import Problem, format_path


class FieldError(NamedTuple):
    """An error in a VMI spec. The path begins at the spec; `..` is the object that holds the spec."""

    path: Path
    message: str

    def below(self, spec: Path) -> Problem:
        path = (*spec[:-1], *self.path[1:]) if self.path[:1] == ("..",) else (*spec, *self.path)
        return Problem(format_path(path), self.message)


def raise_errors(spec: Path, errors: Iterable[FieldError]) -> None:
    """Raises `InvalidDocument` if there are errors."""
    problems = [error.below(spec) for error in errors]
    if problems:
        raise InvalidDocument(problems)


class InvalidDocument(Exception):
    """The document is invalid. A retry of the same document fails with the same problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


class MalformedBody(InvalidDocument):
    """The body is not a request."""


class LibvirtUnavailable(Exception):
    """The document may be valid, but this libvirt cannot decide."""


class LibvirtFailed(LibvirtUnavailable):
    """libvirt fails for every domain. A retry soon would fail too."""


class DomainRejected(Exception):
    """libvirt rejects the domain; the message is libvirt's own."""
