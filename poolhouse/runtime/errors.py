"""Errors of the Kubernetes API: one class for each reaction.

ApiError
├── NotFound       the object or its kind does not exist
│   └── NotServed      the API server does not have the kind: retry soon, somebody may be installing it
├── AlreadyExists  another writer has created it
├── Conflict       it changed since it was read: read it again
├── Invalid        the API server will never accept this body: report it to its author
├── Unauthorized   the API server does not know the credentials
├── Forbidden      RBAC or an admission policy refuses it
│   └── QuotaExceeded  a quota is full: retry later
├── Expired        the resourceVersion is too old: list again
├── Throttled      retry, but not before `retry_after_seconds`
├── Unavailable    the server failed; a write may have been done
├── WebhookFailed  an admission webhook did not answer the server; the write was not done
└── Unreachable    no response, or an incomplete response; a write MAY HAVE BEEN DONE
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

TEXT_LIMIT = 2000
# Limit on Retry-After, because a proxy may have written the response.
RETRY_AFTER_LIMIT_SECONDS = 300.0


class ApiError(Exception):
    """An error of the Kubernetes API. `message` is the server's message with its causes, and never empty."""

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
        message = message or reason or type(self).__name__
        super().__init__(message)
        self.message, self.status, self.reason = message, status, reason
        self.details: dict[str, Any] = dict(details or {})
        self.retry_after_seconds, self.call = retry_after_seconds, call

    @property
    def of_watch(self) -> bool:
        """Whether a watch got the error. A user may have the right to list, and not the right to watch."""
        return self.call.startswith("watch ")

    @property
    def causes(self) -> list[dict[str, Any]]:
        """`details.causes`: each has `reason`, `message` and, for an invalid field, `field`."""
        return [cause for cause in self.details.get("causes") or [] if isinstance(cause, dict)]

    def __str__(self) -> str:
        what = " ".join(str(part) for part in (self.status or "", self.reason) if part)
        return ": ".join(part for part in (self.call, what, self.message) if part)


class NotFound(ApiError): ...


class NotServed(NotFound): ...


class AlreadyExists(ApiError): ...


class Conflict(ApiError): ...


class Invalid(ApiError): ...


class Unauthorized(ApiError): ...


class Forbidden(ApiError): ...


class QuotaExceeded(Forbidden): ...


class Expired(ApiError): ...


class Throttled(ApiError): ...


class Unavailable(ApiError): ...


class WebhookFailed(ApiError):
    @property
    def webhook(self) -> str:
        """The name of the webhook, such as `pools.poolhouse.dev`."""
        found = WEBHOOK_FAILURE.search(self.message)
        return found["name"] if found else ""

    @property
    def cause(self) -> str:
        """Why the API server got no answer, without the address that it called."""
        found = WEBHOOK_FAILURE.search(self.message)
        return found["cause"] if found else self.message


class Unreachable(ApiError): ...


OUTCOME_UNKNOWN: tuple[type[Exception], ...] = (Unreachable, Unavailable, TimeoutError)
"""Errors after which the API server may have executed the request."""

QUOTA = re.compile(r"is forbidden: (exceeded quota|status unknown for quota): ")
"""Message of the API server when a quota is full, or when the usage of a new quota is not counted yet."""

NO_KIND = re.compile(r"^404 page not found$|the server could not find the requested resource")
"""Message of the API server for a path of a kind that it does not have."""

WEBHOOK_FAILURE = re.compile(
    r'failed calling webhook "(?P<name>[^"]*)": (?:failed to call webhook: )?(?:\w+ "[^"]*": )?(?P<cause>.*)', re.DOTALL
)
"""Message of the API server, which has the code of every other internal error."""

CLASSES: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    413: Invalid,
    422: Invalid,
    429: Throttled,
}


def error_from_status(
    status: Mapping[str, Any], *, code: int | None = None, retry_after: str | None = None, now: datetime, call: str
) -> ApiError:
    """The error of a `Status` object in a response or a watch event."""
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
    if number == 404 and NO_KIND.search(message):
        message = f"the API server does not serve {_kind(call)}"
        return NotServed(message, status=number, reason=reason, details=details, call=call)
    return _class(number, reason, seconds, message)(
        message, status=number, reason=reason, details=details, retry_after_seconds=seconds, call=call
    )


def error_from_response(
    code: int, body: bytes, *, retry_after: str | None = None, now: datetime, call: str = ""
) -> ApiError:
    """The error of an HTTP response. A proxy may have written the response, in HTML or without a body."""
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
    # ERROR events of a watch have the reason Expired with codes other than 410.
    if reason in {"Expired", "Gone"}:
        return Expired
    # A 503 with Retry-After means that the server has not executed the request.
    if code == 503 and retry_after_seconds is not None:
        return Throttled
    # An exceeded quota has the code and the reason of every other `Forbidden`. Only the message differs.
    if code == 403 and QUOTA.search(message):
        return QuotaExceeded
    if code == 500 and WEBHOOK_FAILURE.search(message):
        return WebhookFailed
    return CLASSES.get(code, Unavailable if code >= 500 else ApiError)


def _sentence(status: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    """The server's message, and the causes that the message does not contain."""
    message = str(status.get("message") or status.get("reason") or "the answer has no message")
    for cause in details.get("causes") or []:
        if isinstance(cause, dict):
            text = str(cause.get("message") or cause.get("reason") or "")
            if text and text not in message:
                field = cause.get("field")
                message += f"; {field}: {text}" if field else f"; {text}"
    return message


def _kind(call: str) -> str:
    """The plural of the kind in the path of a request, with its group."""
    path = re.search(r"/apis/(?P<group>[^/]+)/[^/]+/(?:namespaces/[^/]+/)?(?P<plural>[^/?]+)", call)
    return f"{path['plural']}.{path['group']}" if path is not None else "this kind"


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(retry_after: str | None, now: datetime) -> float | None:
    """The seconds of a Retry-After header, which is a number of seconds or a date."""
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds())
