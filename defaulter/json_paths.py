"""Parses paths of values in a JSON document, and fills the unset values of a document."""

from functools import cache
from typing import Any, cast

from poolhouse.api.apimachinery.unstructured import Json, at

Path = tuple[str | int, ...]


@cache
def parse_path(dotted: str) -> Path:
    """Converts a text like `disk.bus` to a path of keys. The text cannot contain list indexes."""
    return tuple(dotted.split(".")) if dotted else ()


def is_unset(value: Any) -> bool:
    """Whether a Go client omits the value: it is absent, an empty string or the number 0."""
    return value is None or value == "" or (value == 0 and not isinstance(value, bool))


class DocumentEditor:
    """Fills unset values in a copy of a document. The original and values that are set never change."""

    def __init__(self, document: Json) -> None:
        self.document: Json = dict(document)
        self._copies: dict[int, Any] = {id(self.document): self.document}
        self.filled: list[tuple[Path, Any]] = []

    def get(self, path: Path) -> Any:
        return at(self.document, *path)

    def fill(self, path: Path, value: Any) -> bool:
        """Sets an unset value, and creates the objects above the value. Returns False if the value is set already or if
        its path leads through a value that is not an object."""
        if value is None or not is_unset(self.get(path)) or not _can_hold(self.document, path[:-1]):
            return False
        self.replace(path, value)
        return True

    def replace(self, path: Path, value: Any) -> None:
        """Sets a value, whether it is set or not."""
        *above, last = cast(list[Any], path)
        parent: Any = self.document
        for step in above:
            child = at(parent, step)
            parent[step] = child = self._copy({} if child is None else child)
            parent = child
        if isinstance(parent, list) and last == len(parent):
            parent.append(value)
        else:
            parent[last] = value
        self.filled.append((path, value))

    def append(self, path: Path, item: Any) -> bool:
        """Adds an item to a list, and creates a list that is unset. Returns False if the path leads through a value of
        another type."""
        items = self.get(path)
        if not isinstance(items, list) and (not is_unset(items) or not _can_hold(self.document, path[:-1])):
            return False
        if not items:
            self.replace(path, [])
        self.replace((*path, len(items or ())), item)
        return True

    def _copy(self, container: Any) -> Any:
        """The editor's copy of an object or list. `_copies` keeps each copy alive, so that its id stays unique."""
        if id(container) in self._copies:
            return container
        copy = container.copy()
        self._copies[id(copy)] = copy
        return copy


def _can_hold(value: Any, path: Path) -> bool:
    for step in path:
        if value is None:
            return True
        if not isinstance(value, dict if isinstance(step, str) else list):
            return False
        value = at(value, step)
    return value is None or isinstance(value, dict)
