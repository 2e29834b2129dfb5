"""JSON merge patches (RFC 7396), and the three-way merge by which `kubectl apply` changes a custom resource."""

from __future__ import annotations

import json
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json, at

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""annotation with the manifest of the last `kubectl apply`"""


def merge_patch(old: Json, new: Json, *, explicit_nulls: bool = False) -> Json:
    """Returns the JSON merge patch that changes the old document into the new one. A null in the new document is the
    same as an absent field; with `explicit_nulls`, the patch has it if the old document does not have the field."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        known = key in old or not explicit_nulls
        if known and _json_type(before) is _json_type(value) and before == value:
            continue
        if isinstance(before, dict) and isinstance(value, dict):
            patch[key] = merge_patch(before, value, explicit_nulls=explicit_nulls)
        else:
            patch[key] = value
    return patch


def _json_type(value: Any) -> type:
    """Keeps true and 1 apart, which are equal. A member of an enumeration of strings is a string in JSON."""
    return str if isinstance(value, str) else type(value)


def apply_patch(document: Any, patch: Any) -> Any:
    """Returns the document after a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    found = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = apply_patch(found.get(key), value)
    return found


def three_way_patch(original: Json, modified: Json, current: Json) -> Json:
    """Returns the patch that `kubectl apply` sends for a custom resource: it sets what the manifest `modified` has, and
    removes what the last manifest `original` had and `modified` has no more. Fields of `current` that neither has stay.

    Source: `CreateThreeWayJSONMergePatch` of k8s.io/apimachinery, which kubectl calls for kinds that it does not know.
    """
    removed = _filtered(merge_patch(original, modified, explicit_nulls=True), nulls=True)
    set_to = _filtered(merge_patch(current, modified), nulls=False)
    return _joined(removed, set_to)


def last_applied(document: Json) -> Json:
    """Returns the manifest of the last `kubectl apply`; empty if there was none, or if the annotation is invalid."""
    try:
        found = json.loads(at(document, "metadata", "annotations", LAST_APPLIED) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def with_last_applied(document: Json) -> Json:
    """Adds the annotation that the next `kubectl apply` compares with its manifest."""
    metadata = dict(document.get("metadata") or {})
    notes = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED}
    bare = {**document, "metadata": {**metadata, "annotations": notes}}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    return {**bare, "metadata": {**metadata, "annotations": {**notes, LAST_APPLIED: text}}}


def _filtered(patch: Json, *, nulls: bool) -> Json:
    """The part of a patch that removes fields, or the part that sets fields. An empty object sets a field."""
    found: Json = {}
    for key, value in patch.items():
        if isinstance(value, dict) and value:
            if inner := _filtered(value, nulls=nulls):
                found[key] = inner
        elif (value is None) == nulls:
            found[key] = value
    return found


def _joined(first: Json, second: Json) -> Json:
    """Both patches as one. The second has no nulls."""
    both = {
        key: _joined(first[key], value) if isinstance(first.get(key), dict) and isinstance(value, dict) else value
        for key, value in second.items()
    }
    return {**first, **both}
