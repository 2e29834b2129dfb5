from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from poolhouse.runtime import errors
from tests.runtime.faulty_server import status

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("code", "reason", "retry_after", "expected"),
    [
        (400, "BadRequest", None, errors.Invalid),
        (401, "Unauthorized", None, errors.Unauthorized),
        (403, "Forbidden", None, errors.Forbidden),
        (404, "NotFound", None, errors.NotFound),
        (405, "MethodNotAllowed", None, errors.ApiError),
        (409, "AlreadyExists", None, errors.AlreadyExists),
        (409, "Conflict", None, errors.Conflict),
        (410, "Expired", None, errors.Expired),
        (410, "Gone", None, errors.Expired),
        (413, "RequestEntityTooLarge", None, errors.Invalid),
        (422, "Invalid", None, errors.Invalid),
        (429, "TooManyRequests", None, errors.Throttled),
        (500, "InternalError", None, errors.Unavailable),
        (503, "ServiceUnavailable", None, errors.Unavailable),
        (503, "ServiceUnavailable", "1", errors.Throttled),
        (504, "Timeout", None, errors.Unavailable),
    ],
)
def test_each_answer_raises_its_class_of_error(
    code: int, reason: str, retry_after: str | None, expected: type[errors.ApiError]
) -> None:
    body = json.dumps(status(code, reason)).encode()
    error = errors.error_from_response(code, body, retry_after=retry_after, now=NOW)
    assert type(error) is expected
    assert (error.status, error.reason) == (code, reason)


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        pytest.param(
            b"404 page not found\n",
            "/apis/kubevirt.io/v1/namespaces/a/virtualmachines/web-1",
            "the API server does not serve virtualmachines.kubevirt.io",
            id="its CRD is deleted",
        ),
        pytest.param(
            json.dumps({"kind": "Status", "message": "the server could not find the requested resource"}).encode(),
            "/apis/kubevirt.io/v1/virtualmachines?limit=1",
            "the API server does not serve virtualmachines.kubevirt.io",
            id="another path of its group is served",
        ),
        pytest.param(b"404 page not found", "/x", "the API server does not serve this kind", id="no path of a kind"),
    ],
)
def test_a_kind_that_is_not_served_differs_from_an_object_that_is_gone(body: bytes, path: str, message: str) -> None:
    error = errors.error_from_response(404, body, now=NOW, call=f"POST {path}")
    assert (type(error), error.message) == (errors.NotServed, message)


@pytest.mark.parametrize(
    ("rest", "cause"),
    [
        (
            'failed to call webhook: Post "https://a.b.svc/mutate?timeout=10s": context deadline exceeded',
            "context deadline exceeded",
        ),
        ('Post "https://a.b.svc/mutate": dial tcp 10.0.0.1:443: refused', "dial tcp 10.0.0.1:443: refused"),
        ("expected response.uid=a, got b", "expected response.uid=a, got b"),
    ],
)
def test_a_webhook_without_an_answer_differs_from_other_errors_of_the_server(rest: str, cause: str) -> None:
    message = f'Internal error occurred: failed calling webhook "pools.poolhouse.dev": {rest}'
    body = json.dumps({**status(500, "InternalError"), "message": message}).encode()
    error = errors.error_from_response(500, body, now=NOW)
    assert isinstance(error, errors.WebhookFailed)
    assert (error.webhook, error.cause) == ("pools.poolhouse.dev", cause)
    assert not isinstance(error, errors.OUTCOME_UNKNOWN), "admission comes before the write"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('pods "a" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2', True),
        ('pods "a" is forbidden: status unknown for quota: few, resources: pods', True),
        ('pods "a" is forbidden: failed quota: few: must specify limits.cpu for: main', False),
        ('admission webhook "gate.example.com" denied the request: no exceeded quota: of errors here', False),
        ('pods is forbidden: User "ann" cannot create resource "pods"', False),
    ],
)
def test_a_full_quota_differs_from_other_refusals(message: str, expected: bool) -> None:
    body = json.dumps({**status(403, "Forbidden"), "message": message}).encode()
    error = errors.error_from_response(403, body, now=NOW)
    assert isinstance(error, errors.Forbidden)
    assert isinstance(error, errors.QuotaExceeded) is expected


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        (None, {}, None),
        ("7", {}, 7),
        (None, {"retryAfterSeconds": 3}, 3),
        ("7", {"retryAfterSeconds": 3}, 7),
        ("Thu, 01 Jan 2026 12:00:30 GMT", {}, 30),
        ("Thu, 01 Jan 2026 11:00:00 GMT", {}, 0),
        ("soon", {}, None),
        ("-1", {}, None),
        ("nan", {}, None),
        ("99999999999999999999", {}, errors.RETRY_AFTER_LIMIT_SECONDS),
    ],
)
def test_all_forms_of_retry_after(header: str | None, details: dict[str, Any], seconds: float | None) -> None:
    body = json.dumps(status(429, "TooManyRequests", **details)).encode()
    assert errors.error_from_response(429, body, retry_after=header, now=NOW).retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the answer has no text"),
        (b"upstream connect error", "upstream connect error"),
        (b"{}", "{}"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"x" * 10_000, "x" * errors.TEXT_LIMIT),
        (b'{"kind": "Status", "details": 7, "message": null}', "the answer has no message"),
        (b'{"kind": "Status", "details": {"causes": [7, {}]}, "message": "m"}', "m"),
    ],
)
def test_answers_without_a_status_keep_their_text(body: bytes, message: str) -> None:
    error = errors.error_from_response(502, body, now=NOW)
    assert isinstance(error, errors.Unavailable)
    assert error.message == message
    assert error.causes == [] or error.causes == [{}]


def test_every_cause_is_in_the_message_once() -> None:
    causes = [
        {"field": "spec.a", "message": "Required value"},
        {"field": "spec.b", "message": "Invalid value"},
        {"message": "said"},
    ]
    body = json.dumps(status(422, "Invalid", "it is wrong: said", causes=causes)).encode()
    assert errors.error_from_response(422, body, now=NOW).message == (
        "it is wrong: said; spec.a: Required value; spec.b: Invalid value"
    )
