"""Reads YAML as kubectl does: only values that JSON has, and no document that expands to an endless or huge one."""

from collections.abc import Iterator
from typing import Any

import yaml

MAX_EXPANDED_VALUES = 200_000
"""limit on the values of a short file after its aliases are expanded; a few lines of nested aliases make millions"""
_JSON_TAGS = ("null", "bool", "int", "float", "str", "seq", "map", "merge")


class InvalidYAML(ValueError):
    """The text is not YAML, or has values that JSON does not have."""


class _Loader(yaml.SafeLoader):
    """Reads a date as text, and refuses tags of other types."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML reads it from the class)
        first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in _JSON_TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {  # noqa: RUF012
        tag: constructor
        for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in _JSON_TAGS
    }


def load_all(text: str | bytes) -> list[Any]:
    """The documents of a text, without empty ones. Raises `InvalidYAML`."""
    try:
        found = [each for each in yaml.load_all(text, _Loader) if each is not None]
        _check_size(found, max(len(text), MAX_EXPANDED_VALUES))
    except RecursionError:
        raise InvalidYAML("nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError comes from the value of a number
        raise InvalidYAML(str(error)) from None
    return found


def load(text: str | bytes) -> Any:
    """The first document of a text; None without one. Raises `InvalidYAML`."""
    return next(iter(load_all(text)), None)


def _check_size(documents: list[Any], limit: int) -> None:
    for number, _ in enumerate(_values(documents, frozenset())):
        if number >= limit:
            raise InvalidYAML(f"its aliases expand to more than {limit} values")


def _values(value: Any, above: frozenset[int]) -> Iterator[Any]:
    yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if id(value) in above:
        raise InvalidYAML("an alias contains itself")
    inside = above | {id(value)} if children else above
    for child in children:
        yield from _values(child, inside)
