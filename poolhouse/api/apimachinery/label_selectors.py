"""Evaluates, formats and parses label selectors."""

import re
from collections.abc import Mapping
from typing import Any

_COMMA = re.compile(r",(?![^()]*\))")
_EQUALITY = re.compile(r"([\w./-]+)=([\w.-]*)")
_SET = re.compile(r"([\w./-]+) (in|notin) \(([^()]*)\)")
_EXISTENCE = re.compile(r"(!?)([\w./-]+)")
_TEXTS = {"In": "{key} in ({values})", "NotIn": "{key} notin ({values})", "Exists": "{key}", "DoesNotExist": "!{key}"}


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a selector matches the labels. An empty selector matches everything, None matches nothing."""
    if selector is None:
        return False
    found = labels or {}
    return all(found.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        _meets(requirement, found) for requirement in selector.get("matchExpressions") or []
    )


def to_string(selector: Mapping[str, Any] | None) -> str:
    """The text of a selector for a query or `status.labelSelector`. Raises ValueError for None, because an empty text
    matches everything."""
    if selector is None:
        raise ValueError("an absent selector matches nothing, which no text can express")
    equalities = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    requirements = [
        _TEXTS[_operator(each)].format(key=each["key"], values=",".join(each.get("values") or []))
        for each in selector.get("matchExpressions") or []
    ]
    return ",".join([*equalities, *requirements])


def from_string(text: str) -> dict[str, Any]:
    """Parses a text of `to_string`. Raises ValueError for any other text."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for part in _COMMA.split(text) if text else ():
        if found := _EQUALITY.fullmatch(part):
            labels[found[1]] = found[2]
        elif found := _SET.fullmatch(part):
            operator = "In" if found[2] == "in" else "NotIn"
            expressions.append({"key": found[1], "operator": operator, "values": found[3].split(",")})
        elif found := _EXISTENCE.fullmatch(part):
            expressions.append({"key": found[2], "operator": "DoesNotExist" if found[1] else "Exists"})
        else:
            raise ValueError(f"{part!r} is none of: key, !key, key=value, key in (a,b), key notin (a,b)")
    selector = {"matchLabels": labels, "matchExpressions": expressions}
    return {name: part for name, part in selector.items() if part}


def _meets(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values") or []
    match _operator(requirement):
        case "In":
            return labels.get(key) in values
        case "NotIn":  # an absent label satisfies NotIn
            return labels.get(key) not in values
        case operator:
            return (key in labels) == (operator == "Exists")


def _operator(requirement: Mapping[str, Any]) -> str:
    operator = str(requirement["operator"])
    if operator not in _TEXTS:
        raise ValueError(f"operator {operator!r} is not allowed: must be {', '.join(_TEXTS)}")
    return operator
