"""Reads manifests, and prints manifests for `kubectl apply`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import yaml

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.apimachinery.yaml_reader import InvalidYAML, load_all
from poolhouse.cli.output import Failed, echo_block, print_json


@dataclass(frozen=True)
class Manifest:
    """One object of a file."""

    document: Json
    file: str
    number: int | None = None
    """position of the object in the file; None if the file has a single object"""

    @property
    def place(self) -> str:
        return f"{self.file}, document {self.number}" if self.number else self.file

    def __str__(self) -> str:
        kind, version = self.document.get("kind"), self.document.get("apiVersion")
        return f"a {kind} of {version}" if kind and version else f"a {kind}" if kind else "an object without a kind"


def read_manifests(source: IO[bytes]) -> list[Manifest]:
    """Returns the objects of a file and of its Lists. Raises `Failed` for an invalid or empty file."""
    given = str(getattr(source, "name", "-"))  # an in-memory stream has no name
    name = "standard input" if given in ("-", "<stdin>") else given
    try:
        loaded = load_all(source.read())
    except InvalidYAML as error:
        raise Failed(f"{name}: invalid YAML: {error}") from None
    found = [item for document in loaded for item in _items(document)]
    if not found:
        raise Failed(f"{name}: contains no object")
    manifests = [Manifest(each, name, number if len(found) > 1 else None) for number, each in enumerate(found, 1)]
    if invalid := [each for each in manifests if not isinstance(each.document, dict)]:
        raise Failed("\n".join(f"{each.place}: must be an object, not {str(each.document)[:60]}" for each in invalid))
    return manifests


def _items(document: Any) -> Iterator[Any]:
    items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
    yield from items if isinstance(items, list) else [document]


def require_kind(manifests: Iterable[Manifest], api_version: str, kind: str) -> list[Manifest]:
    """Returns the manifests. Raises `Failed` with a line for each object of another kind."""
    found = list(manifests)
    wanted = (api_version, kind)
    others = [each for each in found if (each.document.get("apiVersion"), each.document.get("kind")) != wanted]
    if others:
        raise Failed("\n".join(f"{each.place}: must be a {kind} of {api_version}, not {each}" for each in others))
    return found


def as_list(documents: Iterable[Json]) -> Json:
    """Returns a List, which `kubectl apply` accepts."""
    return {"apiVersion": "v1", "kind": "List", "items": list(documents)}


def print_manifests(output: str, documents: Sequence[Json]) -> None:
    """Prints YAML documents, or in JSON a List or a single object."""
    if output == "json":
        print_json(documents[0] if len(documents) == 1 else as_list(documents))
    else:
        echo_block(yaml.safe_dump_all(documents, sort_keys=False, width=120), nl=False)
