"""Checks of names, labels, annotations and label selectors."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, entries, replaced
from poolhouse.api.kinds.model import Rule
from poolhouse.api.kinds.validation import child_path, quoted

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_GENERATED = "x" * 5
"""as many characters as the API server appends to generateName"""
INVALID_NAMESPACE = "must be the name of a namespace"
_INVALID_KEY = "is not a label key: [DOMAIN/]NAME, where NAME has at most 63 letters, digits, '-', '_' and '.'"


def is_label(name: str) -> bool:
    """Whether the name is a DNS label, as required for host names."""
    return _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return _QUALIFIED.fullmatch(name) is not None and (not slash or is_subdomain(prefix))


def is_label_value(value: str) -> bool:
    return value == "" or _QUALIFIED.fullmatch(value) is not None


def name_problem(found: Any) -> str:
    """What is wrong with a name that is missing or is not text, such as `on` in YAML."""
    if found in (None, ""):
        return "is missing; give the object a name"
    return f"must be text, not {quoted(found)}; write it in quotes"


def effective_name(document: Any) -> str | None:
    """The object's name, or a text as long as the name that the API server will generate."""
    name, prefix = at(document, "metadata", "name"), at(document, "metadata", "generateName")
    if isinstance(name, str) and name:
        return name
    # The API server truncates a long prefix.
    return prefix[: 63 - len(_GENERATED)] + _GENERATED if isinstance(prefix, str) and prefix else None


def name_rule(max_length: int, message: str, *, label: bool = False) -> Rule:
    """A limit on the length of the object's name. With `label`, the name must also be a DNS label."""

    def holds(document: object) -> bool:
        name = effective_name(document)
        return name is None or (len(name) <= max_length and (not label or is_label(name)))

    pattern = "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && " if label else ""
    return Rule(f"{pattern}self.metadata.name.size() <= {max_length}", message, holds, ".metadata.name")


def metadata_problems(document: Json) -> Iterator[Problem]:
    """Checks the metadata that users write: name, namespace, labels and annotations."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        yield Problem("metadata", f"must be an object with a name, not {quoted(metadata)}")
        return
    yield from label_problems(metadata.get("labels"), "metadata.labels")
    yield from annotation_problems(metadata.get("annotations"), "metadata.annotations")
    name = effective_name(document)
    if name is None:
        yield Problem("metadata.name", name_problem(metadata.get("name")))
    elif not is_subdomain(name):
        yield Problem(
            "metadata.name", f"must be lower case letters, digits, '-' and '.', at most 253, not {quoted(name)}"
        )
    namespace = metadata.get("namespace")
    if namespace not in (None, "") and not (isinstance(namespace, str) and is_label(namespace)):
        yield Problem("metadata.namespace", INVALID_NAMESPACE)


def label_problems(value: Any, path: str) -> Iterator[Problem]:
    yield from _text_problems(value, path)
    for key, text in value.items() if isinstance(value, dict) else ():
        yield from _label_problems(key, text, path)


def annotation_problems(value: Any, path: str) -> Iterator[Problem]:
    yield from _text_problems(value, path)
    for key in value if isinstance(value, dict) else ():
        if isinstance(key, str) and not is_label_key(key.lower()):
            yield Problem(child_path(path, key), _INVALID_KEY)


def _text_problems(value: Any, path: str) -> Iterator[Problem]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield Problem(path, f"must be an object of keys and texts, not {quoted(value)}")
        return
    for key, text in value.items():
        if not isinstance(key, str):
            yield Problem(child_path(path, key), "the key must be text; write it in quotes")
        elif not isinstance(text, str):
            yield Problem(child_path(path, key), not_text(text))


def not_text(value: Any) -> str:
    hint = f'; write it in quotes, "{quoted(value)}"' if isinstance(value, bool | int | float) else ""
    return f"must be text, not {quoted(value)}{hint}"


def _label_problems(key: Any, value: Any, path: str) -> Iterator[Problem]:
    if isinstance(key, str) and not is_label_key(key):
        yield Problem(child_path(path, key), _INVALID_KEY)
    if isinstance(value, str) and not is_label_value(value):
        yield Problem(
            child_path(path, key),
            f"must be at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or a digit, "
            f"not {quoted(value)}",
        )


def booleans_to_text(document: Json, *path: str | int) -> Json:
    """The document with booleans at the path replaced by "true" and "false"; the same object if there are none. YAML
    reads an unquoted `true` as a boolean. Numbers are denied, because 010 and 1.10 have already lost digits."""
    labels = at(document, *path)
    if not isinstance(labels, dict) or not any(isinstance(text, bool) for text in labels.values()):
        return document
    texts = {key: quoted(text) if isinstance(text, bool) else text for key, text in labels.items()}
    return replaced(document, texts, *path)


def selector_problems(value: Any, path: str) -> Iterator[Problem]:
    """Problems of a label selector that its schema cannot express."""
    matches = at(value, "matchLabels")
    for key, text in matches.items() if isinstance(matches, dict) else ():
        yield from _label_problems(key, text, f"{path}.matchLabels")
    for index, expression in entries(value, "matchExpressions"):
        yield from _expression_problems(expression, f"{path}.matchExpressions[{index}]")


def _expression_problems(expression: Mapping[str, Any], path: str) -> Iterator[Problem]:
    key, operator, values = expression.get("key"), expression.get("operator"), expression.get("values")
    if isinstance(key, str) and not is_label_key(key):
        yield Problem(f"{path}.key", _INVALID_KEY)
    given = values if isinstance(values, list) else []
    if operator in ("In", "NotIn") and not given:
        yield Problem(f"{path}.values", f"is missing; operator {operator} needs at least one value")
    if operator in ("Exists", "DoesNotExist") and given:
        yield Problem(f"{path}.values", f"must be left out; operator {operator} takes none")
    for index, text in enumerate(given):
        if isinstance(text, str) and not is_label_value(text):
            yield Problem(f"{path}.values[{index}]", f"is not a label's value: {quoted(text)}")
