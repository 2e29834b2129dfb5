"""Places inside a document: reading them, naming them to people, filling the empty ones without touching the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

Json = dict[str, Any]
Path = tuple[str | int, ...]


def get(value: Any, path: Path) -> Any:
    """The value there, None where anything on the way is absent or of another shape."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def parse_path(dotted: str) -> Path:
    """`disk.bus` as a path; for the paths that we write ourselves, which have no index."""
    return tuple(dotted.split(".")) if dotted else ()


def format_path(path: Path) -> str:
    """The way API servers name a place: `spec.domain.devices.disks[0].disk.bus`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def is_unset(value: Any) -> bool:
    """What a Go client would have left out: absent, an empty string, or the number nought."""
    return value is None or value == "" or (value == 0 and not isinstance(value, bool))


def objects(value: Any) -> Iterator[tuple[int, Json]]:
    """The objects of a list with their index, passing over what is none."""
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield index, item


class DocumentEditor:
    """A document being filled. What was not empty cannot be changed by filling, and the original is never touched."""

    def __init__(self, document: Json) -> None:
        self.document: Json = dict(document)
        self._own: dict[int, Any] = {id(self.document): self.document}
        self.filled: list[tuple[Path, Any]] = []

    def get(self, path: Path) -> Any:
        return get(self.document, path)

    def fill(self, path: Path, value: Any) -> bool:
        """Puts a value where there is none, and the objects above it; False where something stands already, or where
        something on the way is no object."""
        if value is None or not is_unset(get(self.document, path)) or not _reachable(self.document, path[:-1]):
            return False
        self.replace(path, value)
        return True

    def replace(self, path: Path, value: Any) -> None:
        """Puts a value whatever was there."""
        *above, last = cast(list[Any], path)
        parent: Any = self.document
        for step in above:
            child = get(parent, (step,))
            parent[step] = child = self._owned({} if child is None else child)
            parent = child
        if isinstance(parent, list) and last == len(parent):
            parent.append(value)
        else:
            parent[last] = value
        self.filled.append((path, value))

    def _owned(self, container: Any) -> Any:
        """A container of ours in place of one that the caller may hold; kept alive, so that its id stays its own."""
        if id(container) in self._own:
            return container
        copy = container.copy()
        self._own[id(copy)] = copy
        return copy


def _reachable(value: Any, path: Path) -> bool:
    for step in path:
        if value is None:
            return True
        if not isinstance(value, dict if isinstance(step, str) else list):
            return False
        value = get(value, (step,))
    return value is None or isinstance(value, dict)
