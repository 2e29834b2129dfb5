"""What an API server's refusal says about the document: problems with paths, or nothing at all."""

from __future__ import annotations

import re
from typing import Any

from apimachinery.problem import Problem
from runtime.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound

_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')
_DENIED = re.compile(r'^admission webhook "[^"]+" denied the request: ')


def problems_of(error: ApiError) -> tuple[Problem, ...]:
    """Problems of the document for which it was refused. Empty: the API server could not or would not look at it."""
    match error:
        case AlreadyExists():
            return (Problem("metadata.name", "is taken: an object of this name exists already"),)
        case Conflict():
            return (Problem("metadata.resourceVersion", error.message),)
        case NotFound() if error.details.get("kind") == "namespaces":
            return (Problem("metadata.namespace", error.message),)
        case NotFound() if error.details.get("name"):
            return (Problem("metadata.name", error.message),)
        case NotFound():
            return (Problem("kind", "this cluster does not serve it"),)
        case Invalid() | Forbidden() if error.status != 401:
            return _causes(error) or _unknown_fields(error) or (Problem("", _DENIED.sub("", error.message)),)
        case _:
            return ()


def _causes(error: ApiError) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(Problem(_text(cause, "field"), _text(cause, "message")) for cause in error.causes))


def _unknown_fields(error: ApiError) -> tuple[Problem, ...]:
    """Strict decoding names fields in its sentence only."""
    return tuple(Problem(path, "is not a field here") for path in _UNKNOWN_FIELD.findall(error.message))


def _text(cause: dict[str, Any], key: str) -> str:
    value = cause.get(key)
    # Causes about the whole object are filed under this word.
    return value if isinstance(value, str) and value != "<nil>" else ""
