"""What can be wrong: with the document, which its author must mend (`Refused`), or with us (`Unable`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from defaulter.paths import Path, text


@dataclass(frozen=True)
class Problem:
    path: str
    message: str


class Fault(NamedTuple):
    """A problem found inside a VM's spec, its path counted from there; `..` is the object that holds the spec."""

    path: Path
    message: str

    def below(self, spec: Path) -> Problem:
        path = (*spec[:-1], *self.path[1:]) if self.path[:1] == ("..",) else (*spec, *self.path)
        return Problem(text(path), self.message)


def refuse(spec: Path, faults: Iterable[Fault]) -> None:
    """Raises what was found, if anything was."""
    problems = [fault.below(spec) for fault in faults]
    if problems:
        raise Refused(problems)


class Refused(Exception):
    """The document is wrong, whoever is asked and however often."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{p.path}: {p.message}" if p.path else p.message for p in problems))


class Malformed(Refused):
    """The body is no document at all."""


class Unable(Exception):
    """The document may be right, but this libvirt cannot decide it."""


class Declined(Exception):
    """libvirt will not have this domain; the message is its own sentence."""


class Broken(Unable):
    """libvirt cannot work, and will not soon; nothing is said about the domain."""
