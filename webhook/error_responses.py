"""The responses to requests that fail. All errors have one form, even those for unknown paths."""

import logging
import math
from collections.abc import Mapping
from types import MappingProxyType

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.service.cpu_lane import BudgetSpent, LaneFull
from poolhouse.service.request_body import RequestRefused
from webhook import models
from webhook.metrics import Metrics

log = logging.getLogger(__name__)


def error_response(
    status: int, *problems: Problem, wait: float | None = None, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """The response for an error."""
    headers = {**headers, **({"WWW-Authenticate": "Bearer"} if status == 401 else {})}
    if wait is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return JSONResponse(models.ErrorResponse(problems=problems).model_dump(mode="json"), status, headers)


def failure_response(metrics: Metrics, path: str, error: Exception) -> Response:
    """The response to a request whose handling has failed."""
    match error:
        case LaneFull():
            message = "too many large requests of this namespace or address are waiting; try again in a second"
            error = RequestRefused(429, message, retry_after_seconds=1)
        case BudgetSpent():
            error = RequestRefused(503, "the document needs too much processor time; make it smaller")
    match error:
        case RequestRefused():
            metrics.unreadable.labels(path, str(error.status)).inc()
            return error_response(error.status, Problem("", error.message), wait=error.retry_after_seconds)
        case HTTPException():
            return error_response(error.status_code, Problem("", error.detail), headers=error.headers or {})
    log.error("%s failed", path, exc_info=error)
    return error_response(500, Problem("", "internal error; the webhook's log has the details"))
