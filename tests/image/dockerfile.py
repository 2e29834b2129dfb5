"""Reads Dockerfiles: their instructions, and the variables in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_VARIABLE = re.compile(r"\$\{(\w+)(?::([+-])([^{}]*(?:\{[^{}]*\}[^{}]*)*))?\}|\$(\w+)")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n", "", lines).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def expand(text: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        known = variables.get(match.group(1) or match.group(4), "")
        if match.group(2) == "+":
            return expand(match.group(3), variables) if known else ""
        return known or (expand(match.group(3), variables) if match.group(2) == "-" else "")

    return _VARIABLE.sub(value, text)
