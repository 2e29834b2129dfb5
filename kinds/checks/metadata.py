"""Names, labels and selectors as Kubernetes wants them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from apimachinery.problem import Problem
from apimachinery.unstructured import Json, at, entries
from kinds.validation import child_path, quoted

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
GENERATED = "x" * 5
"""stands for the characters that the API server appends to generateName"""

_VALUED = ("In", "NotIn")
_VALUELESS = ("Exists", "DoesNotExist")


def is_label(name: str) -> bool:
    """A DNS label: what a host name may be."""
    return LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return _QUALIFIED.fullmatch(name) is not None and (not slash or is_subdomain(prefix))


def is_label_value(value: str) -> bool:
    return value == "" or _QUALIFIED.fullmatch(value) is not None


def effective_name(document: Any) -> str | None:
    """The name an object has or will have, as far as its length goes."""
    name, prefix = at(document, "metadata", "name"), at(document, "metadata", "generateName")
    if isinstance(name, str) and name:
        return name
    # The API server cuts a long prefix to make room.
    return prefix[: 63 - len(GENERATED)] + GENERATED if isinstance(prefix, str) and prefix else None


def metadata_problems(document: Json) -> Iterator[Problem]:
    """Of metadata, what a person writes: name, labels and annotations."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        yield Problem("metadata", f"must be an object with a name, not {quoted(metadata)}")
        return
    yield from label_problems(metadata.get("labels"), "metadata.labels")
    yield from annotation_problems(metadata.get("annotations"), "metadata.annotations")
    name = effective_name(document)
    if name is None:
        yield Problem("metadata.name", "is missing; give the object a name")
    elif not is_subdomain(name):
        yield Problem(
            "metadata.name", f"must be lower case letters, digits, '-' and '.', at most 253, not {quoted(name)}"
        )


def label_problems(value: Any, path: str) -> Iterator[Problem]:
    """Of labels that objects will carry."""
    yield from _texts(value, path)
    for key, text in value.items() if isinstance(value, dict) else ():
        yield from _label(key, text, path)


def annotation_problems(value: Any, path: str) -> Iterator[Problem]:
    yield from _texts(value, path)
    for key in value if isinstance(value, dict) else ():
        if isinstance(key, str) and not is_label_key(key.lower()):
            yield Problem(child_path(path, key), _KEY)


def _texts(value: Any, path: str) -> Iterator[Problem]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield Problem(path, f"must be an object of keys and texts, not {quoted(value)}")
        return
    for key, text in value.items():
        if not isinstance(key, str):
            yield Problem(child_path(path, key), "the key must be text; write it in quotes")
        elif not isinstance(text, str):
            told = f'; write it in quotes, "{quoted(text)}"' if isinstance(text, bool | int | float) else ""
            yield Problem(child_path(path, key), f"must be text, not {quoted(text)}{told}")


_KEY = "is not a label key: [DOMAIN/]NAME, where NAME has at most 63 letters, digits, '-', '_' and '.'"


def _label(key: Any, value: Any, path: str) -> Iterator[Problem]:
    if isinstance(key, str) and not is_label_key(key):
        yield Problem(child_path(path, key), _KEY)
    if isinstance(value, str) and not is_label_value(value):
        yield Problem(
            child_path(path, key),
            f"must be at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or a digit, "
            f"not {quoted(value)}",
        )


def booleans_as_text(value: Any) -> Any:
    """A selector's labels with `true` made "true"; the value itself where there is none.

    Numbers stay wrong and are refused: 010 and 1.10 have lost their form before anybody could read them.
    """
    if not isinstance(value, dict) or not any(isinstance(text, bool) for text in value.values()):
        return value
    return {key: quoted(text) if isinstance(text, bool) else text for key, text in value.items()}


def selector_problems(value: Any, path: str) -> Iterator[Problem]:
    """Of a label selector, what its schema does not say."""
    matches = at(value, "matchLabels")
    for key, text in matches.items() if isinstance(matches, dict) else ():
        yield from _label(key, text, f"{path}.matchLabels")
    for index, expression in entries(value, "matchExpressions"):
        yield from _expression(expression, f"{path}.matchExpressions[{index}]")


def _expression(expression: Mapping[str, Any], path: str) -> Iterator[Problem]:
    key, operator, values = expression.get("key"), expression.get("operator"), expression.get("values")
    if isinstance(key, str) and not is_label_key(key):
        yield Problem(f"{path}.key", _KEY)
    given = values if isinstance(values, list) else []
    if operator in _VALUED and not given:
        yield Problem(f"{path}.values", f"is missing; operator {operator} needs at least one value")
    if operator in _VALUELESS and given:
        yield Problem(f"{path}.values", f"must be left out; operator {operator} takes none")
    for index, text in enumerate(given):
        if isinstance(text, str) and not is_label_value(text):
            yield Problem(f"{path}.values[{index}]", f"is not a label's value: {quoted(text)}")
