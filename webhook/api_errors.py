"""Converts errors of the API server to problems of the refused document."""

import re
from typing import Any

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.runtime.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unauthorized,
)
from webhook.models import QueryError

_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')
_DENIED = re.compile(r'^admission webhook "[^"]+" denied the request: ')


def cause_of(error: ApiError | TimeoutError) -> str:
    return error.message if isinstance(error, ApiError) else "no answer in time"


def query_error(error: ApiError) -> QueryError:
    """Converts an error of the API server to the error response of a query."""
    if isinstance(error, Unauthorized):
        return QueryError(401, Problem("", "the API server does not know this token"))
    if isinstance(error, Forbidden):
        return QueryError(error.status, Problem("", error.message))
    wait = error.retry_after_seconds if isinstance(error, Throttled) else 1
    message = f"the API server gave no answer: {error.message}"
    return QueryError(503, Problem("", message), retry_after_seconds=wait)


def problems_of(error: ApiError) -> tuple[Problem, ...]:
    """Problems of the document; empty if the API server did not judge it."""
    match error:
        case AlreadyExists():
            return (Problem("metadata.name", "an object of this name exists already; choose another name"),)
        case Conflict():
            return (Problem("metadata.resourceVersion", error.message),)
        case NotFound() if error.details.get("kind") == "namespaces":
            return (Problem("metadata.namespace", error.message),)
        case NotFound() if error.details.get("name"):
            return (Problem("metadata.name", error.message),)
        case NotFound():
            return (Problem("kind", "this cluster does not serve this kind"),)
        case Invalid() | Forbidden():
            return _causes(error) or unknown_fields(error) or (Problem("", _DENIED.sub("", error.message)),)
        case _:
            return ()


def _causes(error: ApiError) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(Problem(_text(cause, "field"), _text(cause, "message")) for cause in error.causes))


def unknown_fields(error: ApiError) -> tuple[Problem, ...]:
    """Unknown fields of the document, from the message of strict decoding, which has no causes."""
    return tuple(Problem(path, "unknown field") for path in _UNKNOWN_FIELD.findall(error.message))


def _text(cause: dict[str, Any], key: str) -> str:
    value = cause.get(key)
    # "<nil>" is the API server's field for a cause that concerns the whole object.
    return value if isinstance(value, str) and value != "<nil>" else ""
