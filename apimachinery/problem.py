"""One thing that is wrong with a document, told to the person who wrote it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """`path` is where (`spec.template.spec.running`, `spec.rules[0]`); `message` is what was found and what to do."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message
