"""Label selectors, as Kubernetes means them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

COMMA = re.compile(r",(?![^()]*\))")
EQUAL = re.compile(r"([\w./-]+)=([\w.-]*)")
AMONG = re.compile(r"([\w./-]+) (in|notin) \(([^()]*)\)")
THERE = re.compile(r"(!?)([\w./-]+)")


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str] | None) -> bool:
    """An empty selector matches everything, an absent one nothing."""
    if selector is None:
        return False
    found = labels or {}
    return all(found.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        _meets(requirement, found) for requirement in selector.get("matchExpressions") or []
    )


def to_string(selector: Mapping[str, Any] | None) -> str:
    """The form of a query or of `status.labelSelector`; the empty string matches everything.

    An absent selector matches nothing, which the form cannot say; asking for it is a mistake."""
    if selector is None:
        raise ValueError("an absent selector has no text: it matches nothing, and no text means everything")
    equal = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    return ",".join([*equal, *(_text(requirement) for requirement in selector.get("matchExpressions") or [])])


def from_string(text: str) -> dict[str, Any]:
    """The selector of which `to_string` makes such a text; ValueError for a text that it never makes."""
    equal: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for part in COMMA.split(text) if text else ():
        if found := EQUAL.fullmatch(part):
            equal[found[1]] = found[2]
        elif found := AMONG.fullmatch(part):
            operator = "In" if found[2] == "in" else "NotIn"
            expressions.append({"key": found[1], "operator": operator, "values": found[3].split(",")})
        elif found := THERE.fullmatch(part):
            expressions.append({"key": found[2], "operator": "DoesNotExist" if found[1] else "Exists"})
        else:
            raise ValueError(f"{part!r} is none of: key, !key, key=value, key in (a,b), key notin (a,b)")
    selector = {"matchLabels": equal, "matchExpressions": expressions}
    return {name: wanted for name, wanted in selector.items() if wanted}


def _meets(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":  # an absent label is not in any set
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case other:
            raise ValueError(f"no such operator: {other!r}; there are In, NotIn, Exists, DoesNotExist")


def _text(requirement: Mapping[str, Any]) -> str:
    key, values = requirement["key"], ",".join(requirement.get("values") or [])
    match requirement["operator"]:
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "Exists":
            return str(key)
        case "DoesNotExist":
            return f"!{key}"
        case other:
            raise ValueError(f"no such operator: {other!r}; there are In, NotIn, Exists, DoesNotExist")
