"""What can be wrong: with the document, which its author must mend (`Refused`), or with us (`Unable`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from apimachinery.problem import Problem
from defaulter.json_paths import Path, format_path


class FieldError(NamedTuple):
    """A problem found inside a VM's spec, its path counted from there; `..` is the object that holds the spec."""

    path: Path
    message: str

    def below(self, spec: Path) -> Problem:
        path = (*spec[:-1], *self.path[1:]) if self.path[:1] == ("..",) else (*spec, *self.path)
        return Problem(format_path(path), self.message)


def raise_errors(spec: Path, faults: Iterable[FieldError]) -> None:
    """Raises what was found, if anything was."""
    problems = [fault.below(spec) for fault in faults]
    if problems:
        raise InvalidDocument(problems)


class InvalidDocument(Exception):
    """The document is invalid: the same document always fails with the same problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


class MalformedBody(InvalidDocument):
    """The body is no document at all."""


class LibvirtUnavailable(Exception):
    """The document may be right, but this libvirt cannot decide it."""


class DomainRejected(Exception):
    """libvirt will not have this domain; the message is its own sentence."""


class LibvirtFailed(LibvirtUnavailable):
    """libvirt cannot work, and will not soon; nothing is said about the domain."""
