"""What the API server refused, one class for each way of reacting to it.

ApiError
├── NotFound       it is gone, or its kind is
├── AlreadyExists  someone was first
├── Conflict       it changed since it was read: read again
├── Invalid        the same body will never be accepted: tell its author
├── Forbidden      we may not (401 too), or somebody's policy says no
│   └── OverQuota  a quota is full: later perhaps, when there is room
├── Expired        that resourceVersion is history: list again
├── Throttled      later, and not before `retry_after_seconds`
├── Unavailable    the server failed; a write may have happened
└── Unreachable    no answer, or not a whole one: a write MAY HAVE HAPPENED
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

TEXT_LIMIT = 2000
# No answer, whoever wrote it, makes us wait for longer.
RETRY_AFTER_LIMIT_SECONDS = 300.0


class ApiError(Exception):
    """An answer that is not what was asked for. `message` is the server's own sentence, its causes included."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: float | None = None,
        call: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details: dict[str, Any] = dict(details or {})
        self.retry_after_seconds = retry_after_seconds
        self.call = call

    @property
    def causes(self) -> list[dict[str, Any]]:
        """`details.causes`: each has `reason`, `message` and, for a bad field, `field`."""
        return [cause for cause in self.details.get("causes") or [] if isinstance(cause, dict)]

    def __str__(self) -> str:
        what = " ".join(str(part) for part in (self.status or "", self.reason) if part)
        return ": ".join(part for part in (self.call, what, self.message) if part)


class NotFound(ApiError): ...


class AlreadyExists(ApiError): ...


class Conflict(ApiError): ...


class Invalid(ApiError): ...


class Forbidden(ApiError): ...


class QuotaExceeded(Forbidden): ...


class Expired(ApiError): ...


class Throttled(ApiError): ...


class Unavailable(ApiError): ...


class Unreachable(ApiError): ...


OUTCOME_UNKNOWN: tuple[type[Exception], ...] = (Unreachable, Unavailable, TimeoutError)
"""An answer that never came, or is none: what was asked for may have been done."""

QUOTA = re.compile(r"is forbidden: (exceeded quota|status unknown for quota): ")
"""Full, or so new that nobody has counted yet."""

CLASSES: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    413: Invalid,
    422: Invalid,
    429: Throttled,
}


def error_from_status(
    status: Mapping[str, Any], *, code: int | None = None, retry_after: str | None = None, now: datetime, call: str = ""
) -> ApiError:
    """The error that a `Status` object means, whether it was an answer or an event of a watch."""
    number = code or _number(status.get("code")) or 500
    reason = str(status.get("reason") or "")
    details = status.get("details") if isinstance(status.get("details"), dict) else {}
    assert isinstance(details, dict)
    seconds = _seconds(retry_after, now)
    if seconds is None:
        seconds = _number(details.get("retryAfterSeconds"))
    if seconds is not None:
        seconds = min(seconds, RETRY_AFTER_LIMIT_SECONDS)
    message = _sentence(status, details)
    return _class(number, reason, seconds, message)(
        message,
        status=number,
        reason=reason,
        details=details,
        retry_after_seconds=seconds,
        call=call,
    )


def error_from_response(
    code: int, body: bytes, *, retry_after: str | None = None, now: datetime, call: str = ""
) -> ApiError:
    """The error of an HTTP answer. What is between us and the API server answers too, in HTML or in nothing."""
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = body[:TEXT_LIMIT].decode("utf-8", "replace").strip()
        status = {"message": text or "the answer has no text"}
    return error_from_status(status, code=code, retry_after=retry_after, now=now, call=call)


def _class(code: int, reason: str, retry_after_seconds: float | None, message: str) -> type[ApiError]:
    if reason == "AlreadyExists":
        return AlreadyExists
    # Events of a watch say it by reason where the code is another one.
    if reason in {"Expired", "Gone"}:
        return Expired
    # 503 with Retry-After is how the server says "not now" before it has done anything.
    if code == 503 and retry_after_seconds is not None:
        return Throttled
    # The code and the reason are those of any other refusal.
    if code == 403 and QUOTA.search(message):
        return QuotaExceeded
    return CLASSES.get(code, Unavailable if code >= 500 else ApiError)


def _sentence(status: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    """The server's message, and those causes that it doesn't already quote."""
    message = str(status.get("message") or status.get("reason") or "no reason given")
    for cause in details.get("causes") or []:
        if isinstance(cause, dict):
            text = str(cause.get("message") or cause.get("reason") or "")
            if text and text not in message:
                field = cause.get("field")
                message += f"; {field}: {text}" if field else f"; {text}"
    return message


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(retry_after: str | None, now: datetime) -> float | None:
    """Retry-After is a number of seconds or a date."""
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds())
