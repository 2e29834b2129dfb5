"""Manifests: read as people write them, and printed as kubectl applies them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import click
import yaml

from cli.output import Failed, print_json

Json = dict[str, Any]


@dataclass(frozen=True)
class Manifest:
    """One object of a file."""

    document: Json
    file: str
    number: int | None = None
    """which of the file's objects, where it has several"""

    @property
    def place(self) -> str:
        return f"{self.file}, document {self.number}" if self.number else self.file

    def __str__(self) -> str:
        kind, version = self.document.get("kind"), self.document.get("apiVersion")
        return f"a {kind} of {version}" if kind and version else f"a {kind}" if kind else "an object without a kind"


def read_manifests(source: IO[bytes]) -> list[Manifest]:
    """The objects of a file, lists taken apart; there is at least one. Raises `Failed`, with the file's name."""
    given = str(getattr(source, "name", "-"))  # what is no file has no name
    name = "standard input" if given in ("-", "<stdin>") else given
    try:
        loaded = [each for each in yaml.safe_load_all(source.read()) if each is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Failed(f"{name}: no YAML: {error}") from None
    found = [item for document in loaded for item in _items(document)]
    if not found:
        raise Failed(f"{name}: there is no object in it")
    manifests = [Manifest(each, name, number if len(found) > 1 else None) for number, each in enumerate(found, 1)]
    if wrong := [each for each in manifests if not isinstance(each.document, dict)]:
        raise Failed("\n".join(f"{each.place}: is no object: {str(each.document)[:60]}" for each in wrong))
    return manifests


def _items(document: Any) -> Iterator[Any]:
    items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
    yield from items if isinstance(items, list) else [document]


def require_kind(manifests: Iterable[Manifest], api_version: str, kind: str) -> list[Manifest]:
    """All of them. Raises `Failed` for those of another kind, with a line for each."""
    found = list(manifests)
    wanted = (api_version, kind)
    others = [each for each in found if (each.document.get("apiVersion"), each.document.get("kind")) != wanted]
    if others:
        raise Failed("\n".join(f"{each.place}: is {each}; a {kind} of {api_version} is wanted" for each in others))
    return found


def as_list(documents: Iterable[Json]) -> Json:
    """As one object, which kubectl takes for its items."""
    return {"apiVersion": "v1", "kind": "List", "items": list(documents)}


def print_manifests(output: str, documents: Sequence[Json]) -> None:
    """As a file for `kubectl apply`. In JSON a single one is printed as it is."""
    if output == "json":
        print_json(documents[0] if len(documents) == 1 else as_list(documents))
    else:
        click.echo(yaml.safe_dump_all(documents, sort_keys=False, width=120), nl=False)
